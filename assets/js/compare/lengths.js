// @ts-check
// Focus against full attention on longer pieces of the text.
import { ComparePart } from "./part.js";
import { el } from "../core/dom.js";
import { dropdown } from "../core/fields.js";
import { format } from "../core/format.js";
import { drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { lazyDetails, tableOf } from "../core/widgets.js";
import { lengths as text } from "../strings/compare.js";

const withRouting = (point, end = "median") => point[`focus_${end}`] + point.routing_median;

export class CompareLengths extends ComparePart {
  constructor(app) {
    super(app, "lengths", text);
    this.kind = "lengths";
    this.questions = { state: "compare_lengths", start: "compare_lengths_start" };
    this.seconds = "30";
    this.answer = null;
    this.form = el("form", { class: "fx-form", onsubmit: (event) => event.preventDefault() });
    this.form.append(
      dropdown(text.time, text.budgets, this.seconds, (seconds) => (this.seconds = seconds)),
      this.button("", () => this.begin()),
    );
    this.verdict = el("div", { class: "fx-verdict" });
    this.chart = el("div", {
      class: "fx-plot fx-crossover",
      role: "group",
      "aria-label": text.title,
      "data-testid": "fx-crossover",
    });
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

  begin() {
    return this.start({ layer: this.layer, seconds: Number(this.seconds) });
  }

  received(answer) {
    const same = this.answer !== null && JSON.stringify(answer.layers) === JSON.stringify(this.answer.layers);
    this.answer = answer;
    if (!same) this.show();
  }

  show() {
    this.startButton.textContent = text.start(this.layer);
    const found = this.answer === null ? undefined : this.answer.layers[this.layer];
    this.results.hidden = found === undefined;
    this.nothing.textContent = this.answer !== null && found === undefined ? text.empty(this.layer) : "";
    if (found === undefined) return;
    this.points = found.points;
    this.crossing = found.crossing;
    this.verdict.replaceChildren(...sentences(this.layer, found).map((words) => el("p", {}, words)));
    if (this.table.open) this.table.refresh();
    if (this.open) this.draw();
  }

  draw() {
    const { app, points, crossing } = this;
    const { root } = app;
    const spread = (low, mid, high) => ({
      type: "data",
      symmetric: false,
      thickness: 1,
      width: 3,
      array: points.map((p) => high(p) - mid(p)),
      arrayminus: points.map((p) => mid(p) - low(p)),
    });
    const trace = (name, colour, dash, low, mid, high) => ({
      type: "scatter",
      mode: "lines+markers",
      name,
      x: points.map((p) => p.tokens),
      y: points.map(mid),
      error_y: spread(low, mid, high),
      customdata: points,
      hoverinfo: "none",
      line: { color: cssColour(root, colour), width: 1.5, dash },
      marker: { size: 8 },
    });
    const data = [
      trace(
        text.full,
        "text",
        "dash",
        (p) => p.full_low,
        (p) => p.full_median,
        (p) => p.full_high,
      ),
      trace(
        text.focus,
        "accent",
        "solid",
        (p) => withRouting(p, "low"),
        (p) => withRouting(p),
        (p) => withRouting(p, "high"),
      ),
    ];
    const crosses = crossing.kind === "interpolated";
    const x = crosses ? Math.log10(crossing.tokens) : 0;
    const layout = plotLayout(root, {
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      margin: { l: 8, r: 24, t: 40, b: 8 },
      xaxis: plotAxis(root, text.lengthAxis, {
        type: "log",
        tickvals: points.map((p) => p.tokens),
        ticktext: points.map((p) => format.count(p.tokens)),
      }),
      yaxis: plotAxis(root, text.timeAxis, { type: "log", dtick: 1 }),
      shapes: crosses
        ? [
            {
              type: "line",
              x0: crossing.tokens,
              x1: crossing.tokens,
              yref: "paper",
              y0: 0,
              y1: 1,
              line: { color: cssColour(root, "muted"), dash: "dot", width: 1.5 },
            },
          ]
        : [],
      annotations: crosses
        ? [
            {
              x,
              xanchor: "left",
              y: 0.02,
              yref: "paper",
              yanchor: "bottom",
              xshift: 6,
              showarrow: false,
              text: text.crossingMark(format.count(Math.round(crossing.tokens))),
              font: { color: cssColour(root, "muted"), size: 12 },
            },
          ]
        : [],
    });
    drawPlot(app, this.chart, data, layout, {
      hover: (point) => el("div", {}, text.atLongest(...atPoint(point.customdata))),
    });
  }

  numbers() {
    const spread = (p, mode) =>
      text.span(
        format.msNumber(p[`${mode}_median`]),
        format.msNumber(p[`${mode}_low`]),
        format.msNumber(p[`${mode}_high`]),
      );
    const rows = this.points.map((p) => [
      format.count(p.tokens),
      spread(p, "full"),
      spread(p, "focus"),
      format.ms(p.routing_median),
      format.percent(p.retained_pairs, 1),
      format.ratio(withRouting(p) / p.full_median),
    ]);
    return tableOf(text.columns, rows, { "aria-label": text.table });
  }
}

const atPoint = (p) => [
  format.count(p.tokens),
  format.ms(p.full_median),
  format.ms(withRouting(p)),
  format.ratio(withRouting(p) / p.full_median),
];

function sentences(layer, { points, crossing }) {
  const count = (tokens) => format.count(Math.round(tokens));
  const first = points[0];
  const last = points[points.length - 1];
  const told = {
    interpolated: () => text.crossing(layer, count(crossing.tokens), count(crossing.below), count(crossing.above)),
    "from the start": () => text.fromStart(layer, count(first.tokens), count(last.tokens)),
    mixed: () => text.mixed(layer, count(last.tokens)),
    never: () => text.never(layer, count(last.tokens)),
  }[crossing.kind]();
  return [told, ...(crossing.clear ? [] : [text.unclear]), text.atLongest(...atPoint(last)), text.setting(last)];
}
