// @ts-check
// The charts of the Training tab: one line per training, raw and smoothed, all over the same range of steps.
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { asChart, drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { tooltipHead, tooltipRow } from "../core/tooltip.js";
import { training as text } from "../strings/training.js";
import { DEPENDS_ON_LOSS } from "./curve.js";
import { runSwatch } from "./swatch.js";
/** @import { PlotElement, PlotHost, PlotZoom } from "../core/types.js" */
/** @import { TrainingPayload } from "../core/payloads.js" */
/** @import { Column, Curve } from "./curve.js" */

/** @typedef {keyof typeof text.charts} Kind */
/** A line of a chart. @typedef {{ run: TrainingPayload, mode: string, curve: Curve, colour: string }} CurveLine */
/**
 * How a column is drawn: `map` before drawing, `also` a second column, `marks` of balance, `exact` without smoothing.
 * @typedef {{ column: Column, show: (value: number) => string, tickformat: string, map?: (value: number) => number,
 *   also?: Column, marks?: boolean, exact?: boolean }} ChartSettings
 */

const RAW_OPACITY = 0.28;

const FEW_POINTS = 3;

const HELD_OUT = "held-out:";

const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star"];

/** @param {number} value */
const number = (value) => format.decimal(value, Math.abs(value) < 10 ? 3 : 2);

/** @param {number} value */
const percent = (value) => format.percent(value, 1);

/** @type {Record<Kind, ChartSettings>} */
const KINDS = {
  loss: { column: "loss", show: number, tickformat: "~g" },
  perplexity: { column: "loss", map: Math.exp, show: (value) => format.perplexity(value), tickformat: ",~r" },
  layer_error: { column: "layer_error", show: number, tickformat: "~g" },
  dominance: { column: "dominance", also: "dominance_max", show: percent, tickformat: ".4~p", marks: true },
  retained_pairs: { column: "retained_pairs", show: percent, tickformat: ".4~p" },
  tokens_per_second: { column: "tokens_per_second", show: (value) => format.count(value), tickformat: ",~r" },
  learning_rate: { column: "learning_rate", show: (value) => value.toPrecision(3), tickformat: "~g", exact: true },
};

const KIND_NAMES = /** @type {Kind[]} */ (Object.keys(KINDS));

export class TrainingCharts {
  /** @type {string} */
  key;
  /** @type {CurveLine[]} */
  lines;

  /** @param {PlotHost} app */
  constructor(app) {
    this.app = app;
    /** The steps that are shown, or all. @type {[number, number] | null} */
    this.range = null;
    this.nodes = /** @type {Record<Kind, PlotElement>} */ ({});
    this.fullHelp = el("span", { hidden: true }, text.fullHelp);
    this.heldOutHelp = el("span", { hidden: true }, text.heldOutHelp);
    this.strideHelp = el("span", { hidden: true });
    const sections = KIND_NAMES.map((kind) => this.section(kind));
    const help = el(
      "p",
      { class: "fx-help fx-curves-help" },
      this.fullHelp,
      this.heldOutHelp,
      this.strideHelp,
      el("span", { class: "fx-fine" }, text.zoomHelp),
    );
    this.node = el("div", { class: "fx-curves" }, el("div", { class: "fx-curves-grid" }, sections), help);
  }

  /** @param {Kind} kind */
  section(kind) {
    const words = text.charts[kind];
    this.nodes[kind] = asChart(plotElement("fx-curve", words.title, `fx-curve-${kind}`));
    return el(
      "section",
      { class: "fx-chart" },
      el("h3", { class: "fx-subtitle" }, words.title),
      el("p", { class: "fx-help" }, words.help),
      this.nodes[kind],
    );
  }

  /**
   * `lines` is a list of { run, mode, curve, colour }.
   * @param {CurveLine[]} lines
   */
  update(lines) {
    const key = lines.map((line) => line.run.training_id).join(" ");
    if (key !== this.key) this.range = null;
    this.key = key;
    this.lines = lines.filter((line) => line.curve.length > 0);
    this.fullHelp.hidden = !this.lines.some((line) => line.mode === "full");
    this.heldOutHelp.hidden = !this.lines.some((line) => line.mode.startsWith(HELD_OUT));
    const stride = Math.max(1, ...this.lines.map((line) => line.curve.stride));
    this.strideHelp.hidden = stride === 1;
    this.strideHelp.textContent = text.strideHelp(stride);
    for (const kind of KIND_NAMES) this.draw(kind);
  }

  /** @param {Kind} kind */
  draw(kind) {
    const node = this.nodes[kind];
    const { column } = KINDS[kind];
    const measured = this.lines.some((line) => line.curve.columns[column].some((value) => value !== null));
    const section = node.closest("section");
    if (section) section.hidden = !measured && DEPENDS_ON_LOSS.includes(kind);
    if (section?.hidden) return;
    const domains = [...new Set(this.lines.flatMap((line) => domainOf(line.mode) ?? []))];
    const data = this.lines.flatMap((line) => {
      const domain = domainOf(line.mode);
      return domain === null ? traces(line, KINDS[kind]) : points(line, KINDS[kind], domains.indexOf(domain));
    });
    const fresh = !node.classList.contains("js-plotly-plot");
    drawPlot(this.app, node, data, this.layout(kind), { hover: (point) => this.describe(kind, point.x) }).then(() => {
      if (fresh) node.on("plotly_relayout", (change) => this.zoomed(change));
    });
  }

  /**
   * A part chosen in one chart is shown in all of them.
   * @param {PlotZoom} change
   */
  zoomed(change) {
    if (change["xaxis.autorange"]) this.range = null;
    else {
      const { "xaxis.range[0]": low, "xaxis.range[1]": high } = change;
      if (low === undefined || high === undefined) return;
      this.range = [low, high];
    }
    for (const kind of KIND_NAMES) this.draw(kind);
  }

  /** @param {Kind} kind */
  layout(kind) {
    const { root } = this.app;
    const settings = KINDS[kind];
    const across = this.range ? { range: [...this.range], autorange: false } : { autorange: true };
    const marks = settings.marks ? this.balanceMarks() : {};
    return plotLayout(root, {
      ...marks,
      margin: { l: 8, r: 12, t: 12, b: 8 },
      hovermode: "x",
      hoverdistance: -1,
      showlegend: false,
      uirevision: this.key,
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
      xaxis: plotAxis(root, text.stepAxis, { ...across, showgrid: false, zeroline: false, tickformat: ",d" }),
      yaxis: {
        ...plotAxis(root, "", { zeroline: false, tickformat: settings.tickformat, nticks: 6 }),
        title: undefined,
      },
    });
  }

  // Where groups would be even, and half as large again: the limit of what still counts as balanced.
  balanceMarks() {
    const { root } = this.app;
    const counts = new Set(this.lines.flatMap((line) => line.run.config.num_groups || []));
    const marks = [...counts].flatMap((groups) => [
      { at: 1 / groups, dash: "solid", words: text.even, side: "top" },
      { at: Math.min(1, 1.5 / groups), dash: "dash", words: text.limit, side: "bottom" },
    ]);
    return {
      shapes: marks.map(({ at, dash }) => ({
        type: "line",
        xref: "paper",
        x0: 0,
        x1: 1,
        y0: at,
        y1: at,
        layer: "below",
        line: { color: cssColour(root, "border-strong"), width: 1, dash },
      })),
      annotations: marks.map(({ at, words, side }) => ({
        xref: "paper",
        x: 1,
        xanchor: "right",
        y: at,
        yanchor: side,
        showarrow: false,
        text: words(format.percent(at, at * 100 === Math.round(at * 100) ? 0 : 1)),
        font: { size: 11, color: cssColour(root, "muted") },
      })),
    };
  }

  /**
   * @param {Kind} kind
   * @param {number} step
   */
  describe(kind, step) {
    const settings = KINDS[kind];
    /** @param {number} value */
    const show = (value) => settings.show(settings.map ? settings.map(value) : value);
    const rows = this.lines.map((line) => {
      const at = line.curve.indexAt(step);
      const value = line.curve.columns[settings.column][at];
      const mean = line.curve.smoothed(settings.column, line.run.steps)[at];
      if (value === null || mean === null || line.curve.columns.step[at] < step - line.curve.stride) return null;
      const domain = domainOf(line.mode);
      if (domain !== null && line.curve.columns.step[at] !== step) return null;
      const name = nameOf(line, domain);
      const words = settings.exact || domain !== null ? show(value) : text.smoothed(show(value), show(mean));
      return tooltipRow([runSwatch(line.colour), name], words);
    });
    return [tooltipHead(text.stepTitle(format.count(step))), ...rows];
  }
}

/**
 * The domain of held-out text a curve belongs to, null for a curve of steps.
 * @param {string} mode
 */
function domainOf(mode) {
  return mode.startsWith(HELD_OUT) ? mode.slice(HELD_OUT.length) : null;
}

/**
 * @param {CurveLine} line
 * @param {string | null} domain
 */
function nameOf({ run, mode }, domain) {
  if (domain !== null) return text.heldOut(run.name, domain);
  return mode === "full" ? text.full(run.name) : run.name;
}

/**
 * Scores on held-out text: every one a point, each domain with a symbol.
 * @param {CurveLine} given
 * @param {ChartSettings} settings
 * @param {number} domain
 */
function points({ curve, colour }, settings, domain) {
  const values = curve.columns[settings.column];
  if (!values.some((value) => value !== null)) return [];
  const { map } = settings;
  return [
    {
      type: "scatter",
      x: curve.columns.step,
      y: values.map((value) => (value === null || !map ? value : map(value))),
      hoverinfo: "none",
      mode: "lines+markers",
      marker: { symbol: SYMBOLS[domain % SYMBOLS.length], size: 7, color: colour },
      line: { color: colour, width: 1, dash: "dot" },
    },
  ];
}

/**
 * @param {CurveLine} given
 * @param {ChartSettings} settings
 */
function traces({ run, mode, curve, colour }, settings) {
  const raw = curve.columns[settings.column];
  if (!raw.some((value) => value !== null)) return [];
  const { map } = settings;
  /** @param {number | null} value */
  const shape = (value) => (value === null || !map ? value : map(value));
  const x = curve.columns.step;
  const dash = mode === "full" ? "dash" : "solid";
  const plain = { type: "scatter", x, hoverinfo: "none", mode: curve.length < FEW_POINTS ? "lines+markers" : "lines" };
  if (settings.exact) return [{ ...plain, y: raw, line: { color: colour, width: 2.25, dash } }];
  const lines = [
    { ...plain, y: raw.map(shape), opacity: RAW_OPACITY, line: { color: colour, width: 1, dash } },
    { ...plain, y: curve.smoothed(settings.column, run.steps).map(shape), line: { color: colour, width: 2.25, dash } },
  ];
  if (settings.also)
    lines.push({
      ...plain,
      y: curve.smoothed(settings.also, run.steps),
      line: { color: colour, width: 1.5, dash: "dot" },
    });
  return lines;
}
