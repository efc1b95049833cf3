// The map view: tokens of one layer placed in two dimensions by their routing vectors.
(function () {
  const el = FX.el;
  const text = FX.strings.map;
  const format = FX.format;
  const SYMBOLS = ["circle", "square", "triangle-up", "cross", "triangle-down", "x", "pentagon", "hexagon"];
  const CROWDED = 3000;

  FX.MapView = class {
    constructor(app, panel) {
      this.app = app;
      this.status = el("div", { class: "fx-status" });
      this.plot = el("div", { class: "fx-plot fx-map", role: "group", "data-testid": "fx-map" });
      this.caption = el("figcaption", { class: "fx-caption" });
      panel.append(this.status, el("figure", { class: "fx-figure" }, this.plot, this.caption));
      this.loader = new FX.LayerLoader((run, layer) => app.server.load_projection(run, layer), {
        open: () => app.isOpen("map"),
        waiting: () => this.wait(),
        ready: (projection) => this.show(projection),
        failed: (message) => this.fail(message),
      });
    }

    update() {
      const { run, layerIndex } = this.app;
      this.loader.request(run.info.run_id, run.layerIds[layerIndex]);
    }

    wait() {
      this.plot.classList.add("fx-stale");
      this.status.replaceChildren(FX.progress(text.waiting(format.count(this.app.run.numTokens))));
    }

    fail(message) {
      this.status.replaceChildren(FX.alert(message, () => this.update()));
    }

    show(projection) {
      const { app } = this;
      this.status.replaceChildren();
      this.plot.classList.remove("fx-stale");
      this.plot.setAttribute("aria-label", text.plotLabel(app.run.layerIds[app.layerIndex]));
      this.caption.replaceChildren(...captionOf(projection, app.tooltip));
      FX.draw(app, this.plot, traces(app, projection), this.layout(projection), {
        hover: (point) => describe(app, point),
        click: (point) => point.data.meta.tokens && app.goToToken(point.data.meta.tokens[point.pointNumber]),
      });
    }

    layout(projection) {
      const bare = { showticklabels: false, zeroline: false, showgrid: false };
      return FX.layout(this.app.root, {
        annotations: centroidLetters(this.app, projection),
        xaxis: { ...bare },
        yaxis: { ...bare, scaleanchor: "x" },
        legend: { orientation: "h", x: 0, y: -0.02, yanchor: "top", itemsizing: "constant" },
      });
    }
  };

  function traces(app, projection) {
    const { run, layerIndex, selection } = app;
    const members = FX.range(run.numGroups).map(() => []);
    for (let pos = 0; pos < run.numTokens; pos += 1) members[run.top(layerIndex, pos)].push(pos);
    const groups = members.map((tokens, group) => groupTrace(app, projection, group, tokens, selection));
    return [...groups, centroidTrace(app, projection)];
  }

  function groupTrace(app, projection, group, tokens, selection) {
    return {
      type: FX.scatterType(),
      mode: "markers",
      name: FX.strings.group(FX.groupLabel(group)),
      x: tokens.map((pos) => projection.x[pos]),
      y: tokens.map((pos) => projection.y[pos]),
      meta: { tokens },
      hoverinfo: "none",
      marker: {
        color: FX.groupColour(group, FX.themeOf(app.root)),
        symbol: SYMBOLS[group % SYMBOLS.length],
        size: app.run.numTokens > CROWDED ? 5 : 7,
        opacity: selection === null ? 0.75 : tokens.map((pos) => (selection.has(pos) ? 0.95 : 0.08)),
      },
    };
  }

  function centroidTrace(app, projection) {
    const theme = FX.themeOf(app.root);
    const groups = FX.range(app.run.numGroups);
    return {
      type: FX.scatterType(),
      mode: "markers",
      name: text.centroids,
      x: projection.centroid_x,
      y: projection.centroid_y,
      hoverinfo: "none",
      meta: {},
      showlegend: false,
      marker: {
        symbol: "diamond",
        size: 30,
        color: FX.cssColour(app.root, "surface"),
        line: { width: 4, color: groups.map((group) => FX.groupColour(group, theme)) },
      },
    };
  }

  // Annotations, because text of a trace would lie beneath the points that WebGL draws.
  function centroidLetters(app, projection) {
    return FX.range(app.run.numGroups).map((group) => ({
      x: projection.centroid_x[group],
      y: projection.centroid_y[group],
      text: FX.groupLabel(group),
      showarrow: false,
      captureevents: false,
      font: { size: 13, weight: 700, color: FX.cssColour(app.root, "text") },
    }));
  }

  function describe(app, point) {
    const { tokens } = point.data.meta;
    if (!tokens) return [el("p", { class: "fx-tooltip-text" }, text.centroid(FX.groupLabel(point.pointNumber)))];
    const pos = tokens[point.pointNumber];
    return FX.tokenSummary(app.run, pos, el("div", {}, app.run.groupsOf(app.layerIndex, pos).map((group) => FX.chip(group))));
  }

  function captionOf(projection, tooltip) {
    const { n_neighbors: neighbours, min_dist: minDist, metric } = projection.parameters || {};
    const parts = [
      text.seed(projection.seed),
      neighbours === undefined ? null : text.neighbours(neighbours),
      minDist === undefined ? null : text.minDist(minDist),
      metric === undefined ? null : text.metric(metric),
    ].filter((part) => part !== null);
    const trust = el("strong", {}, text.trustworthiness(format.decimal(projection.trustworthiness, 2)));
    return [`${text.caption(projection.method, parts.join(", "))} `, trust, FX.hint(tooltip, text.trustworthinessSubject, text.trustworthinessHint)];
  }
})();
