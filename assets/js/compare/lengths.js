// @ts-check
// Focus against full attention on longer pieces of the text.
import { ComparePart } from "./part.js";
import { el } from "../core/dom.js";
import { dropdown } from "../core/fields.js";
import { format } from "../core/format.js";
import { layerWords } from "../core/heads.js";
import { LEGEND_ABOVE, drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { lazyDetails, tableOf } from "../core/widgets.js";
import { lengths as text } from "../strings/compare.js";
/** @import { CrossingPayload, LayerLengthsPayload, LengthPayload, LengthsPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { JobQuestion } from "../core/types.js" */

/**
 * @param {LengthPayload} point
 * @param {"median" | "low" | "high"} [end]
 */
const withRouting = (point, end = "median") => point[`focus_${end}`] + point.routing_median;

export class CompareLengths extends ComparePart {
  /** @type {Run} */
  run;
  /** @type {LengthPayload[]} */
  points;
  /** @type {CrossingPayload | null} */
  crossing;

  /** @param {App} app */
  constructor(app) {
    super(app, "lengths", text);
    this.kind = "lengths";
    /** @type {{ state: JobQuestion, start: JobQuestion }} */
    this.questions = { state: "compare_lengths", start: "compare_lengths_start" };
    this.seconds = "30";
    /** @type {LengthsPayload | null} */
    this.answer = null;
    this.form = el("form", { class: "fx-form", onsubmit: (event) => event.preventDefault() });
    this.form.append(
      dropdown(text.time, text.budgets, this.seconds, (seconds) => (this.seconds = seconds)),
      this.button("", () => this.submit()),
    );
    this.verdict = el("div", { class: "fx-verdict" });
    this.chart = plotElement("fx-crossover", text.title, "fx-crossover");
    this.table = lazyDetails(text.table, () => this.numbers());
    this.results = el("div", { class: "fx-compare-results", hidden: true }, this.verdict, this.chart, this.table);
    this.nothing = el("p", { class: "fx-muted" });
    this.node.append(el("p", { class: "fx-help" }, text.help), this.form, this.line.node, this.nothing, this.results);
  }

  get layer() {
    return this.run.layerIds[this.app.layerIndex];
  }

  update() {
    if (this.run !== this.app.run) {
      this.run = this.app.run;
      this.answer = null;
      this.results.hidden = true;
      this.watch();
    } else if (this.busy) this.watch();
    this.show();
  }

  submit() {
    return this.start({ layer: this.layer, seconds: Number(this.seconds) });
  }

  /** @param {LengthsPayload} answer */
  received(answer) {
    const same = this.answer !== null && JSON.stringify(answer.layers) === JSON.stringify(this.answer.layers);
    this.answer = answer;
    if (!same) this.show();
  }

  show() {
    this.startButton.textContent = text.start(this.layer);
    const lengths = this.answer === null ? undefined : this.answer.layers[this.layer];
    this.results.hidden = lengths === undefined;
    this.nothing.textContent = this.answer !== null && lengths === undefined ? text.empty(this.layer) : "";
    if (lengths === undefined) return;
    this.points = lengths.points;
    this.crossing = lengths.crossing;
    const setting = layerWords(this.run.layers[this.app.layerIndex].parts, this.run.info.config);
    this.verdict.replaceChildren(...sentences(this.layer, lengths, setting).map((words) => el("p", {}, words)));
    if (this.table.open) this.table.refresh();
    if (this.open) this.draw();
  }

  draw() {
    const { app, points } = this;
    const { root } = app;
    const layout = plotLayout(root, {
      legend: LEGEND_ABOVE,
      margin: { l: 8, r: 24, t: 40, b: 8 },
      xaxis: plotAxis(root, text.lengthAxis, {
        type: "log",
        tickvals: points.map((p) => p.tokens),
        ticktext: points.map((p) => format.count(p.tokens)),
      }),
      yaxis: plotAxis(root, text.timeAxis, { type: "log", dtick: 1 }),
      ...crossingMarks(root, this.crossing),
    });
    drawPlot(app, this.chart, timeTraces(root, points), layout, {
      hover: (point) => el("div", {}, text.atLongest(...atPoint(point.customdata))),
    });
  }

  numbers() {
    /** @param {LengthPayload} p @param {"full" | "focus"} mode */
    const interval = (p, mode) =>
      text.span(
        format.msNumber(p[`${mode}_median`]),
        format.msNumber(p[`${mode}_low`]),
        format.msNumber(p[`${mode}_high`]),
      );
    const rows = this.points.map((p) => [
      format.count(p.tokens),
      interval(p, "full"),
      interval(p, "focus"),
      format.ms(p.routing_median),
      format.percent(p.retained_pairs, 1),
      format.ratio(withRouting(p) / p.full_median),
    ]);
    return tableOf(text.columns, rows, { "aria-label": text.table });
  }
}

/**
 * @param {LengthPayload} p
 * @returns {[string, string, string, string]}
 */
const atPoint = (p) => [
  format.count(p.tokens),
  format.ms(p.full_median),
  format.ms(withRouting(p)),
  format.ratio(withRouting(p) / p.full_median),
];

/**
 * @param {number} layer
 * @param {LayerLengthsPayload} given
 * @param {string} setting of the layer's heads
 */
function sentences(layer, { points, crossing }, setting) {
  /** @param {number} tokens */
  const count = (tokens) => format.count(Math.round(tokens));
  const first = points[0];
  const last = points[points.length - 1];
  if (crossing === null) return [];
  const {
    tokens = 0,
    below = 0,
    above = 0,
  } = /** @type {Record<string, number>} */ (/** @type {unknown} */ (crossing));
  const verdict = {
    interpolated: () => text.crossing(layer, count(tokens), count(below), count(above)),
    "from the start": () =>
      first === last
        ? text.fasterAtOne(layer, count(last.tokens))
        : text.fromStart(layer, count(first.tokens), count(last.tokens)),
    mixed: () => text.mixed(layer, count(last.tokens)),
    never: () => (first === last ? text.slowerAtOne : text.never)(layer, count(last.tokens)),
  }[crossing.kind]();
  const unclear = crossing.clear ? [] : [text.unclear];
  return [verdict, ...unclear, text.atLongest(...atPoint(last)), text.setting(setting, conditions(points))];
}

/**
 * How lengths were measured, which may be on another day and machine each.
 * @param {LengthPayload[]} points
 */
function conditions(points) {
  /** @param {(point: LengthPayload) => string} value */
  const each = (value) => [...new Set(points.map(value))].join(" / ");
  return {
    repeats: each((point) => String(point.repeats)),
    device: each((point) => point.device),
    dtype: each((point) => point.dtype),
    threads: each((point) => text.threads(point.threads)),
    backend: each((point) => point.backend),
  };
}

/**
 * The times of both modes, with the range of their repeats.
 * @param {HTMLElement} root
 * @param {LengthPayload[]} points
 */
function timeTraces(root, points) {
  /** @param {string} name @param {object} line @param {((p: LengthPayload) => number)[]} values */
  const trace = (name, line, [low, mid, high]) => ({
    type: "scatter",
    mode: "lines+markers",
    name,
    x: points.map((p) => p.tokens),
    y: points.map(mid),
    error_y: {
      type: "data",
      symmetric: false,
      thickness: 1,
      width: 3,
      array: points.map((p) => high(p) - mid(p)),
      arrayminus: points.map((p) => mid(p) - low(p)),
    },
    customdata: points,
    hoverinfo: "none",
    line: { width: 1.5, ...line },
    marker: { size: 8 },
  });
  const full = [
    (/** @type {LengthPayload} */ p) => p.full_low,
    (/** @type {LengthPayload} */ p) => p.full_median,
    (/** @type {LengthPayload} */ p) => p.full_high,
  ];
  const focus = /** @type {const} */ (["low", "median", "high"]).map(
    (end) => (/** @type {LengthPayload} */ p) => withRouting(p, end),
  );
  return [
    trace(text.full, { color: cssColour(root, "text"), dash: "dash" }, full),
    trace(text.focus, { color: cssColour(root, "accent"), dash: "solid" }, focus),
  ];
}

/**
 * A line at the length of equal times, and that length; nothing where the times do not cross.
 * @param {HTMLElement} root
 * @param {CrossingPayload | null} crossing
 */
function crossingMarks(root, crossing) {
  const tokens = crossing !== null && crossing.kind === "interpolated" ? crossing.tokens : null;
  if (tokens === null) return { shapes: [], annotations: [] };
  const colour = cssColour(root, "muted");
  const line = { color: colour, dash: "dot", width: 1.5 };
  const label = {
    x: Math.log10(tokens),
    xanchor: "left",
    y: 0.02,
    yref: "paper",
    yanchor: "bottom",
    xshift: 6,
    showarrow: false,
    text: text.crossingMark(format.count(Math.round(tokens))),
    font: { color: colour, size: 12 },
  };
  const at = { x0: tokens, x1: tokens, yref: "paper", y0: 0, y1: 1 };
  return { shapes: [{ type: "line", ...at, line }], annotations: [label] };
}
