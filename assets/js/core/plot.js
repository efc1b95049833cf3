// @ts-check
// Charts: common layout and axes, drawing, and hover through the explorer's own tooltip.
import { el } from "./dom.js";
import { loadPlotly } from "./plotly.js";
import { cssColour } from "./theme.js";
import { alertBox } from "./widgets.js";
/** @import { PlotElement, PlotEvents, PlotHost, PlotPointEvent } from "./types.js" */

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

/**
 * @param {HTMLElement} root
 * @param {string} title
 * @param {object} [extra]
 */
export const plotAxis = (root, title, extra = {}) => ({
  title: { text: title, standoff: 8, font: { size: 13 } },
  gridcolor: cssColour(root, "grid"),
  zerolinecolor: cssColour(root, "border-strong"),
  linecolor: cssColour(root, "border-strong"),
  automargin: true,
  ...extra,
});

/**
 * @param {HTMLElement} root
 * @param {object} extra
 */
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

/** A legend in one line above the chart. */
export const LEGEND_ABOVE = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" };

/**
 * The colours of a heatmap from low to high.
 * @param {HTMLElement} root
 * @returns {[number, string][]}
 */
export const colourScale = (root) => [
  [0, cssColour(root, "scale-low")],
  [0.5, cssColour(root, "scale-middle")],
  [1, cssColour(root, "scale-high")],
];

/**
 * The place of a chart in the page.
 * @param {string} className
 * @param {string} label
 * @param {string | null} [testId]
 */
export const plotElement = (className, label, testId = null) =>
  el("div", { class: `fx-plot ${className}`, role: "group", "aria-label": label, "data-testid": testId });

/**
 * An element that Plotly has drawn in, or will.
 * @param {HTMLElement} node
 * @returns {PlotElement}
 */
export const asChart = (node) => /** @type {PlotElement} */ (node);

/**
 * `events` maps hover (point → tooltip content) and click (point → nothing). What was requested last is drawn,
 * also when Plotly is still loading.
 * @param {PlotHost} app
 * @param {HTMLElement} node
 * @param {object[]} data
 * @param {object} layout
 * @param {PlotEvents} events
 * @returns {Promise<void>}
 */
export async function drawPlot(app, node, data, layout, events) {
  const chart = asChart(node);
  chart.fxRequested = { data, layout, events };
  try {
    await loadPlotly();
  } catch (error) {
    const retry = () => {
      chart.replaceChildren();
      drawPlot(app, chart, data, layout, events);
    };
    chart.replaceChildren(alertBox(error.message, retry));
    return new Promise(() => {}); // nothing may follow a chart that is not there
  }
  const newest = chart.fxRequested;
  chart.fxEvents = newest.events;
  await Plotly.react(chart, newest.data, newest.layout, CONFIG);
  chart.fxHidden = chart.offsetParent === null; // its tab was left while Plotly loaded
  if (wired.has(chart)) return undefined;
  wired.add(chart);
  chart.on("plotly_hover", (event) => showPoint(app, chart, event));
  chart.on("plotly_unhover", () => app.tooltip.hide());
  chart.on("plotly_click", (event) => chart.fxEvents?.click?.(event.points[0]));
  return undefined;
}

/**
 * @param {PlotHost} app
 * @param {PlotElement} node
 * @param {PlotPointEvent} event
 */
function showPoint(app, node, event) {
  const content = node.fxEvents?.hover(event.points[0]);
  if (!content) return;
  const { clientX, clientY } = event.event;
  app.tooltip.show(content, { left: clientX, right: clientX, top: clientY - 8, bottom: clientY + 8, width: 0 });
}

/**
 * @param {HTMLElement} panel
 * @returns {NodeListOf<PlotElement>}
 */
const charts = (panel) => panel.querySelectorAll(".js-plotly-plot");

/** @param {HTMLElement} panel */
export const resizePlots = (panel) => {
  for (const node of charts(panel)) if (node.offsetParent !== null) Plotly.Plots.resize(node);
};

/**
 * Charts drawn while their tab was closed have no size yet.
 * @param {HTMLElement} panel
 */
export const resizeHiddenPlots = (panel) => {
  for (const node of charts(panel)) {
    if (node.fxHidden) Plotly.Plots.resize(node).then(() => (node.fxHidden = false));
  }
};

/** @type {boolean | null} */
let webgl = null;

// Plotly draws an error in place of a scattergl chart when the browser has no WebGL.
export const scatterType = () => {
  if (webgl === null) {
    const canvas = document.createElement("canvas");
    webgl = Boolean(canvas.getContext("webgl") || canvas.getContext("experimental-webgl"));
  }
  return webgl ? "scattergl" : "scatter";
};
