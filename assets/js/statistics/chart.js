// @ts-check
// Charts of the Statistics view: lines with intervals and baselines, their legend and tooltip.
import { el } from "../core/dom.js";
import { cssColour } from "../core/theme.js";
import { tooltipHead, tooltipRow } from "../core/tooltip.js";

/** @typedef {"window" | "shuffled" | "random" | "value"} LineName */
/** What is not known is null. @typedef {(number | null | undefined)[]} Numbers */
/** One line of a chart with its band. @typedef {{ y: Numbers, low?: Numbers, high?: Numbers }} Line */
/** @typedef {Partial<Record<LineName, Line | null>>} Series */

/**
 * @param {string} hex
 * @param {number} alpha
 */
const clear = (hex, alpha) => `rgba(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(",")},${alpha})`;

/**
 * How each line looks: colour name, dash, whether it has markers.
 * @type {Record<LineName, [string, string, boolean]>}
 */
const LINES = {
  window: ["border-strong", "dot", false],
  shuffled: ["muted", "dash", false],
  random: ["worse", "solid", false],
  value: ["accent", "solid", true],
};

const LINE_NAMES = /** @type {LineName[]} */ (Object.keys(LINES));

/** @param {number | null | undefined} value */
const isKnown = (value) => value !== null && value !== undefined;

/**
 * Lines with bands; `series`: {value: {y, low, high}, shuffled…}; what is missing everywhere is left out.
 * @param {HTMLElement} root
 * @param {number[]} x
 * @param {Series} series
 */
export const statTraces = (root, x, series) => {
  const traces = [];
  for (const name of LINE_NAMES) {
    const trace = series[name];
    if (!trace || !trace.y.some(isKnown)) continue;
    const [colour, dash, markers] = LINES[name];
    const strong = cssColour(root, colour);
    if (trace.low && trace.low.some(isKnown))
      traces.push(...band(x, trace, clear(strong, name === "value" ? 0.22 : 0.14)));
    traces.push({
      type: "scatter",
      mode: markers ? "lines+markers" : "lines",
      x,
      y: trace.y,
      hoverinfo: "none",
      connectgaps: false,
      line: { color: strong, width: markers ? 2.5 : 2, dash },
      marker: { color: strong, size: 7 },
    });
  }
  return traces;
};

/**
 * @param {number[]} x
 * @param {Line} given
 * @param {string} fill
 */
const band = (x, { low, high }, fill) => [
  { type: "scatter", mode: "lines", x, y: low, hoverinfo: "skip", line: { width: 0 } },
  {
    type: "scatter",
    mode: "lines",
    x,
    y: high,
    hoverinfo: "skip",
    line: { width: 0 },
    fill: "tonexty",
    fillcolor: fill,
  },
];

/**
 * What the lines are; only those that are drawn.
 * @param {Partial<Record<LineName, string>>} names
 * @param {Series} series
 */
export const statLegend = (names, series) =>
  [...LINE_NAMES]
    .reverse()
    .filter((name) => names[name] && series[name]?.y.some(isKnown))
    .map((name) =>
      el("li", {}, el("span", { class: `fx-stat-line fx-stat-line-${name}`, "aria-hidden": "true" }), names[name]),
    );

/**
 * @param {string} title
 * @param {[string, string][]} lines
 */
export const statTip = (title, lines) => [
  tooltipHead(title),
  ...lines.map(([label, value]) => tooltipRow(label, value)),
];
