// @ts-check
// Agreement with another run of the same tokens, layer by layer: adjusted Rand index and tokens in matched groups.
import { addressOf } from "../core/address.js";
import { mean } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { layerTicks } from "../core/layer-axis.js";
import { drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { choiceOf } from "../core/widgets.js";
import { statLegend, statTip, statTraces } from "./chart.js";
import { statRows } from "./rows.js";
import { StatTable } from "./table.js";
import { statistics as text } from "../strings/statistics.js";
/** @import { Run } from "../core/run.js" */
/** @import { App } from "../shell/app.js" */
/** @import { StatisticsView } from "./view.js" */
/** @import { AgreementColumnsPayload } from "../core/payloads.js" */
/** @import { NumberKey, RowOf } from "./rows.js" */
/** @import { Columns } from "./table.js" */

/** @typedef {RowOf<AgreementColumnsPayload>} Row */
/** @typedef {keyof typeof words.measures} Measure */
/** @typedef {"value" | "low" | "high" | "shuffled" | "random"} ColumnName */

const words = text.agreement;

/** @satisfies {Record<Measure, Record<ColumnName, NumberKey<Row>>>} */
const COLUMNS = {
  rand: { value: "adjusted_rand", low: "low", high: "high", shuffled: "shuffled", random: "random" },
  overlap: {
    value: "overlap",
    low: "overlap_low",
    high: "overlap_high",
    shuffled: "overlap_shuffled",
    random: "overlap_random",
  },
};

export class StatAgreement {
  /** @type {Measure} */
  measure = "rand";
  /** @type {App} */
  app;
  /** @type {StatisticsView} */
  view;
  /** @type {string | null} */
  other = null;
  /** @type {Row[]} */
  rows;
  /** @type {Run | null} */
  shown;
  /** @type {Map<string, unknown>} */
  shownAnswers;
  /** @type {HTMLSelectElement} */
  select;

  /**
   * @param {App} app
   * @param {StatisticsView} view
   */
  constructor(app, view) {
    Object.assign(this, { app, view });
    this.requestedRun = addressOf("statistics").get("with");
    this.select = el("select", { onchange: () => this.pick(this.select.value) });
    this.none = el("p", { class: "fx-muted", hidden: true, "data-testid": "fx-stat-no-partner" }, words.none);
    this.chosen = el("label", { class: "fx-select" }, words.other, this.select);
    const measures = choiceOf(words.show, words.measures, this.measure, (measure) => {
      this.measure = measure;
      this.draw();
    });
    this.about = el("p", { class: "fx-help" });
    this.finding = el("p", { class: "fx-finding" });
    this.legend = el("ul", { class: "fx-causes" });
    this.plot = el("div", { class: "fx-plot fx-stat-chart", role: "group", "data-testid": "fx-stat-agreement" });
    this.table = new StatTable(app, text.layers.table, this.columns());
    this.results = el(
      "div",
      { hidden: true },
      el("div", { class: "fx-toolbar" }, measures, this.legend),
      this.about,
      this.finding,
      this.plot,
      el("h4", { class: "fx-stat-heading" }, text.layers.table),
      this.table.node,
    );
    this.body = el(
      "div",
      { hidden: true },
      el("h3", { class: "fx-subtitle" }, words.title),
      el("p", { class: "fx-help" }, words.help),
      this.none,
      el("div", { class: "fx-toolbar" }, this.chosen),
      this.results,
    );
    this.node = el("section", { class: "fx-stat-part" }, this.body);
  }

  get parameters() {
    return { with: this.other };
  }

  /** @returns {Columns<Row>} */
  columns() {
    const { columns } = words;
    /** @param {ColumnName} name @returns {(row: Row) => number | null} */
    const column = (name) => (row) => row[COLUMNS[this.measure][name]];
    /** @param {ColumnName} name @returns {(row: Row) => string} */
    const shown = (name) => (row) => this.number(column(name)(row));
    return {
      layer: [columns.layer, (row) => row.layer, (row) => String(row.layer)],
      value: [
        columns.value,
        column("value"),
        (row) => el("strong", { class: "fx-stat-value" }, this.number(column("value")(row))),
      ],
      interval: [columns.interval, column("low"), (row) => this.interval(row)],
      shuffled: [columns.shuffled, column("shuffled"), shown("shuffled"), text.baselines.shuffled[1]],
      random: [columns.random, column("random"), shown("random"), text.baselines.random[1]],
    };
  }

  /** @param {number | null | undefined} value */
  number(value) {
    if (value === null || value === undefined) return text.none;
    return this.measure === "rand" ? format.decimal(value, 3) : format.percent(value, 1);
  }

  /** @param {Row} row */
  interval(row) {
    const { low, high } = COLUMNS[this.measure];
    return row[low] === null ? text.noInterval : text.interval(this.number(row[low]), this.number(row[high]));
  }

  async update() {
    const { app, view } = this;
    if (this.shown === app.run && this.shownAnswers === view.answers) {
      if (this.rows.length > 0) this.draw();
      else if (this.other !== null) await this.pick(this.other); // it failed, or the view was left meanwhile
      return;
    }
    if (this.shown === app.run) this.requestedRun = this.other; // more was measured: the same run again
    this.body.hidden = this.results.hidden = true;
    this.rows = [];
    const partners = await view.answer("agreement", "compare_partners");
    if (partners === null) return;
    this.shown = app.run;
    this.shownAnswers = view.answers;
    const names = Object.fromEntries(
      partners.runs.map((run) => [run.run_id, words.option({ ...run, date: format.date(run.created_at) })]),
    );
    this.select.replaceChildren(...Object.entries(names).map(([id, name]) => el("option", { value: id }, name)));
    this.none.hidden = partners.runs.length > 0;
    this.chosen.hidden = partners.runs.length === 0;
    this.body.hidden = false;
    this.other = null;
    if (partners.runs.length > 0)
      this.pick(this.requestedRun !== null && this.requestedRun in names ? this.requestedRun : partners.runs[0].run_id);
    this.requestedRun = null;
  }

  /** @param {string} other */
  async pick(other) {
    this.other = this.select.value = other;
    this.rows = [];
    this.results.hidden = true;
    this.app.writeAddress();
    const answer = await this.view.answer("agreement", "statistics_agreement", { other });
    if (answer === null || this.other !== other) return;
    this.rows = statRows(answer.rows);
    this.results.hidden = false;
    this.draw();
  }

  draw() {
    const { app, rows } = this;
    const { run, root, layerIndex } = app;
    const names = COLUMNS[this.measure];
    /** @param {ColumnName} name */
    const column = (name) => rows.map((row) => row[names[name]]);
    this.about.textContent = words.measureHints[this.measure];
    /** @param {Row} row */
    const isAbove = (row) => (row[names.low] ?? -Infinity) > row[names.shuffled];
    this.finding.textContent = words.summary(
      this.number(mean(rows.map((row) => row[names.value]))),
      this.number(mean(rows.map((row) => row[names.shuffled]))),
      rows.filter(isAbove).length,
      rows.length,
    );
    const series = {
      value: { y: column("value"), low: column("low"), high: column("high") },
      shuffled: { y: column("shuffled") },
      random: { y: column("random") },
    };
    this.legend.replaceChildren(...statLegend(words.key, series));
    const name = words.measures[this.measure];
    this.plot.setAttribute("aria-label", words.chart(name));
    const x = rows.map((row) => run.layerIds.indexOf(row.layer));
    const layout = plotLayout(root, {
      showlegend: false,
      dragmode: false,
      margin: { l: 8, r: 16, t: 16, b: 8 },
      xaxis: plotAxis(root, text.layers.axis, {
        ...layerTicks(run, this.plot.clientWidth < 560 ? 8 : 16),
        range: [-0.5, run.numLayers - 0.5],
        zeroline: false,
        fixedrange: true,
      }),
      yaxis: plotAxis(root, name, {
        tickformat: this.measure === "rand" ? "" : ".0%",
        rangemode: "tozero",
        fixedrange: true,
      }),
    });
    /** @param {Row} row */
    const tip = (row) =>
      statTip(text.layers.tooltip(row.layer), [
        [words.key.value, `${this.number(row[names.value])} · ${this.interval(row)}`],
        [words.key.shuffled, this.number(row[names.shuffled])],
        [words.key.random, this.number(row[names.random])],
      ]);
    drawPlot(app, this.plot, statTraces(root, x, series), layout, {
      hover: (point) => tip(rows[x.indexOf(point.x)]),
      click: (point) => app.setLayer(point.x),
    });
    this.table.show(rows, (row) => ({ current: row.layer === run.layerIds[layerIndex] }));
  }
}
