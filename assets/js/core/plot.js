// The one place that talks to Plotly: common layout, drawing, hover through the explorer's own tooltip.
(function () {
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    // Plotly offers to upload charts to its cloud by default; texts must not leave this page.
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { format: "svg", filename: "focus-explorer" },
  };
  const CONTEXT_REACH = 5;
  const wired = new WeakSet();

  let loading = null;
  const plotlyAddress = () => document.querySelector("meta[name=fe-plotly]").content;

  // Plotly takes most of a second to start, so the page opens without it. In an idle moment it is fetched, but not run.
  FX.fetchPlotly = () => {
    if (!window.Plotly && !document.querySelector("link[data-plotly]")) document.head.append(FX.el("link", { rel: "prefetch", as: "script", href: plotlyAddress(), "data-plotly": "" }));
  };

  // Runs it: for the first chart, or as soon as somebody reaches for a tab with charts.
  FX.plotly = () => {
    if (window.Plotly) return Promise.resolve(window.Plotly);
    loading ??= new Promise((done, failed) => {
      const script = FX.el("script", { src: plotlyAddress() });
      script.onload = () => done(window.Plotly);
      script.onerror = () => {
        loading = null;
        failed(new Error(FX.strings.plotMissing));
      };
      document.head.append(script);
    });
    return loading;
  };

  FX.axis = (root, title, extra = {}) => ({
    title: { text: title, standoff: 8, font: { size: 13 } },
    gridcolor: FX.cssColour(root, "grid"),
    zerolinecolor: FX.cssColour(root, "border-strong"),
    linecolor: FX.cssColour(root, "border-strong"),
    automargin: true,
    ...extra,
  });

  FX.layout = (root, extra) => ({
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(root).fontFamily, size: 12, color: FX.cssColour(root, "text") },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: FX.cssColour(root, "muted"), activecolor: FX.cssColour(root, "accent") },
    margin: { l: 8, r: 8, t: 32, b: 8 },
    hovermode: "closest",
    // On a touch screen a chart that pans would trap the finger that wants to scroll the page.
    dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "pan",
    ...extra,
  });

  // `events` maps hover (point → tooltip content) and click (point → nothing). What was asked last is drawn, also when
  // Plotly is still on its way.
  FX.draw = async (app, node, data, layout, events) => {
    node.fxWanted = { data, layout, events };
    try {
      await FX.plotly();
    } catch (error) {
      node.replaceChildren(FX.alert(error.message, () => node.replaceChildren() || FX.draw(app, node, data, layout, events)));
      return new Promise(() => {}); // nothing may follow a chart that is not there
    }
    const wanted = node.fxWanted;
    node.fxEvents = wanted.events;
    await Plotly.react(node, wanted.data, wanted.layout, CONFIG);
    node.fxHidden = node.offsetParent === null; // its tab was left while Plotly loaded
    if (wired.has(node)) return;
    wired.add(node);
    node.on("plotly_hover", (event) => showPoint(app, node, event));
    node.on("plotly_unhover", () => app.tooltip.hide());
    node.on("plotly_click", (event) => node.fxEvents.click && node.fxEvents.click(event.points[0]));
  };

  function showPoint(app, node, event) {
    const content = node.fxEvents.hover(event.points[0]);
    if (!content) return;
    const { clientX, clientY } = event.event;
    app.tooltip.show(content, { left: clientX, right: clientX, top: clientY - 8, bottom: clientY + 8, width: 0 });
  }

  FX.resizePlots = (panel) => {
    for (const node of panel.querySelectorAll(".js-plotly-plot")) if (node.offsetParent !== null) Plotly.Plots.resize(node);
  };

  // Charts drawn while their tab was closed have no size yet.
  FX.resizeHiddenPlots = (panel) => {
    for (const node of panel.querySelectorAll(".js-plotly-plot")) if (node.fxHidden) Plotly.Plots.resize(node).then(() => (node.fxHidden = false));
  };

  let webgl = null;
  // Plotly draws an error in place of a scattergl chart when the browser has no WebGL.
  FX.scatterType = () => {
    if (webgl === null) {
      const canvas = document.createElement("canvas");
      webgl = Boolean(canvas.getContext("webgl") || canvas.getContext("experimental-webgl"));
    }
    return webgl ? "scattergl" : "scatter";
  };

  FX.tokenSummary = (run, pos, ...more) => {
    return [
      FX.el("div", { class: "fx-tooltip-head" }, FX.el("code", {}, FX.visibleToken(run.pieces[pos])), FX.el("span", { class: "fx-muted" }, FX.strings.tokens.tooltip.position(FX.format.count(pos), FX.format.count(run.numTokens)))),
      FX.contextLine(run, pos),
      ...more,
    ];
  };

  // The marked token with a few neighbours; its leading space stays outside the mark, where it looks like a space.
  FX.contextLine = (run, pos) => {
    const { before, token, after } = run.context(pos, CONTEXT_REACH);
    const space = token.trim() && token.startsWith(" ") ? " " : "";
    const lead = pos > CONTEXT_REACH ? "… " : "";
    const tail = pos + CONTEXT_REACH + 1 < run.numTokens ? " …" : "";
    const mark = FX.el("mark", {}, FX.oneLine(token.slice(space.length)));
    return FX.el("p", { class: "fx-context" }, lead, FX.oneLine(before.trimStart()), space, mark, FX.oneLine(after.trimEnd()), tail);
  };
})();
