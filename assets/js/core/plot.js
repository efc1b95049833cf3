// @ts-check
// Charts: common layout and axes, drawing, and hover through the explorer's own tooltip.
import { loadPlotly } from "./plotly.js";
import { cssColour } from "./theme.js";
import { alertBox } from "./widgets.js";

const CONFIG = {
  responsive: true,
  displaylogo: false,
  // Plotly offers to upload charts to its cloud by default; texts must not leave this page.
  showSendToCloud: false,
  plotlyServerURL: "",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  toImageButtonOptions: { format: "svg", filename: "focus-explorer" },
};

const wired = new WeakSet();

export const plotAxis = (root, title, extra = {}) => ({
  title: { text: title, standoff: 8, font: { size: 13 } },
  gridcolor: cssColour(root, "grid"),
  zerolinecolor: cssColour(root, "border-strong"),
  linecolor: cssColour(root, "border-strong"),
  automargin: true,
  ...extra,
});

export const plotLayout = (root, extra) => ({
  autosize: true,
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  font: { family: getComputedStyle(root).fontFamily, size: 12, color: cssColour(root, "text") },
  modebar: { bgcolor: "rgba(0,0,0,0)", color: cssColour(root, "muted"), activecolor: cssColour(root, "accent") },
  margin: { l: 8, r: 8, t: 32, b: 8 },
  hovermode: "closest",
  // On a touch screen a chart that pans would trap the finger that wants to scroll the page.
  dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "pan",
  ...extra,
});

// `events` maps hover (point → tooltip content) and click (point → nothing). What was asked last is drawn, also when
// Plotly is still on its way.
export const drawPlot = async (app, node, data, layout, events) => {
  node.fxWanted = { data, layout, events };
  try {
    await loadPlotly();
  } catch (error) {
    node.replaceChildren(
      alertBox(error.message, () => node.replaceChildren() || drawPlot(app, node, data, layout, events)),
    );
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

export const resizePlots = (panel) => {
  for (const node of panel.querySelectorAll(".js-plotly-plot"))
    if (node.offsetParent !== null) Plotly.Plots.resize(node);
};

// Charts drawn while their tab was closed have no size yet.
export const resizeHiddenPlots = (panel) => {
  for (const node of panel.querySelectorAll(".js-plotly-plot"))
    if (node.fxHidden) Plotly.Plots.resize(node).then(() => (node.fxHidden = false));
};

let webgl = null;

// Plotly draws an error in place of a scattergl chart when the browser has no WebGL.
export const scatterType = () => {
  if (webgl === null) {
    const canvas = document.createElement("canvas");
    webgl = Boolean(canvas.getContext("webgl") || canvas.getContext("experimental-webgl"));
  }
  return webgl ? "scattergl" : "scatter";
};
