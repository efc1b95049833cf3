// @ts-check
// One statistic layer by layer: a line with its interval and its baselines, and the same as a sortable table.
import { addressOf } from "../core/address.js";
import { buttonOf, el } from "../core/dom.js";
import { layerTicks } from "../core/layer-axis.js";
import { drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { statLegend, statTip, statTraces } from "./chart.js";
import {
  byFamily,
  indistinctWords,
  isIndistinct,
  statCell,
  statInterval,
  statKey,
  statName,
  statNumber,
} from "./numbers.js";
import { statRows } from "./rows.js";
import { StatTable } from "./table.js";
import { statistics as text } from "../strings/statistics.js";
/** @import { Run } from "../core/run.js" */
/** @import { App } from "../shell/app.js" */
/** @import { StatisticsView } from "./view.js" */
/** @import { StatisticsPayload } from "../core/payloads.js" */
/** @import { Child } from "../core/types.js" */
/** @import { StatisticNumber, StatisticRow } from "./numbers.js" */
/** @import { Columns } from "./table.js" */

/** A row of the table of layers. @typedef {StatisticRow & { layer: number }} LayerRow */

const words = text.layers;

const FIRST = "nmi"; // the one people came for

export class StatLayers {
  /** @type {App} */
  app;
  /** @type {StatisticsView} */
  view;
  /** @type {StatisticsPayload} */
  answer;
  /** @type {Run | null} */
  shown;
  /** @type {LayerRow[]} */
  rows;
  /** @type {HTMLSelectElement} */
  select;
  /** The statistic, as the address names it. @type {string | null} */
  key;

  /**
   * @param {App} app
   * @param {StatisticsView} view
   */
  constructor(app, view) {
    Object.assign(this, { app, view });
    this.key = addressOf("statistics").get("stat");
    this.title = el("h3", { class: "fx-subtitle" });
    this.about = el("p", { class: "fx-help" });
    this.select = el("select", { onchange: () => this.choose(this.select.value, true) });
    this.legend = el("ul", { class: "fx-causes" });
    this.plot = el("div", { class: "fx-plot fx-stat-chart", role: "group", "data-testid": "fx-stat-layers" });
    this.table = new StatTable(app, words.table, this.columns(), { "data-testid": "fx-stat-layer-table" });
    this.body = el(
      "div",
      { hidden: true },
      el(
        "div",
        { class: "fx-toolbar" },
        el("label", { class: "fx-select" }, words.statistic, this.select),
        this.legend,
      ),
      this.title,
      this.about,
      el("p", { class: "fx-help" }, words.help),
      this.plot,
      el("h4", { class: "fx-stat-heading" }, words.table),
      this.table.node,
    );
    this.node = el("section", { class: "fx-stat-part" }, this.body);
  }

  get parameters() {
    return { stat: this.key };
  }

  /** @returns {Columns<LayerRow>} */
  columns() {
    const { columns } = words;
    /**
     * @param {StatisticNumber} name
     * @param {StatisticNumber} [low]
     * @param {StatisticNumber} [high]
     * @param {boolean} [signed]
     * @returns {[(row: LayerRow) => number | null, (row: LayerRow) => Child[]]}
     */
    const number = (name, low, high, signed) => [
      (row) => row[name],
      (row) => statCell(row.decimals, row[name], low && row[low], high && row[high], signed),
    ];
    return {
      layer: [columns.layer, (row) => row.layer, (row) => this.button(row.layer)],
      value: [columns.value, (row) => row.value, (row) => this.value(row)],
      shuffled: [columns.shuffled, ...number("shuffled", "shuffled_low", "shuffled_high"), text.baselines.shuffled[1]],
      random: [columns.random, ...number("random", "random_low", "random_high"), text.baselines.random[1]],
      difference: [
        columns.difference,
        ...number("difference", "difference_low", "difference_high", true),
        text.baselines.difference[1],
      ],
      window: [columns.window, ...number("window_only"), text.baselines.window[1]],
      q: [
        columns.q,
        (row) => row.q_value,
        (row) => (row.q_value === null ? text.none : text.q(row.q_value)),
        text.qHint,
      ],
    };
  }

  /** @param {StatisticRow} row */
  value(row) {
    const warning = indistinctWords(row);
    return [
      el("strong", { class: "fx-stat-value" }, statNumber(row.decimals, row.value)),
      el("span", { class: "fx-interval" }, statInterval(row.decimals, row.low, row.high) || text.noInterval),
      warning ? el("span", { class: "fx-stat-indistinct" }, warning) : null,
    ];
  }

  /** @param {number} layer */
  button(layer) {
    const index = this.app.run.layerIds.indexOf(layer);
    const openLayer = () => this.app.setLayer(index);
    return buttonOf(layer, openLayer, {
      class: "fx-button fx-row-choose",
      "data-layer": index,
      "aria-label": words.open(layer),
      "aria-current": index === this.app.layerIndex ? "true" : null,
    });
  }

  /**
   * @param {string} key
   * @param {boolean} [draw]
   */
  choose(key, draw = false) {
    this.key = key;
    if (!draw) return;
    this.app.writeAddress();
    this.draw();
  }

  async update() {
    if (this.shown !== this.app.run) this.body.hidden = true;
    const answer = await this.view.answer("layers", "statistics");
    if (answer === null) return;
    if (this.answer !== answer) {
      this.answer = answer;
      this.shown = this.app.run;
      this.rows = /** @type {LayerRow[]} */ (statRows(answer.layers));
      this.drawOptions();
    }
    this.body.hidden = false;
    this.draw();
  }

  // The statistics this run has; the one of the address, or the first.
  drawOptions() {
    const keys = new Map(this.rows.map((row) => [statKey(row), row]));
    if (!keys.has(/** @type {string} */ (this.key)))
      this.key = [...keys.keys()].find((key) => key.startsWith(FIRST)) || [...keys.keys()][0];
    const groups = [...byFamily(keys.values())].map(([label, rows]) =>
      el(
        "optgroup",
        { label },
        rows.map((row) => el("option", { value: statKey(row) }, statName(row))),
      ),
    );
    this.select.replaceChildren(...groups);
    this.app.writeAddress();
  }

  draw() {
    const { app } = this;
    const { run, layerIndex } = app;
    this.select.value = /** @type {string} */ (this.key);
    const rows = this.rows.filter((row) => statKey(row) === this.key).sort((a, b) => a.layer - b.layer);
    const [first] = rows;
    const name = statName(first);
    this.title.textContent = words.title(name);
    const constant = rows.every((row) => row.from_shuffled === null && row.value === row.shuffled);
    this.about.textContent = [first.meaning, constant ? words.constant : null]
      .filter(Boolean)
      .join(" ");
    this.plot.setAttribute("aria-label", words.chart(name));
    this.chart(rows, first.statistic, constant);
    this.table.show(rows, (row) => ({
      class: isIndistinct(row) ? "fx-stat-pale" : null,
      current: row.layer === run.layerIds[layerIndex],
    }));
  }

  /**
   * @param {LayerRow[]} rows
   * @param {string} statistic
   * @param {boolean} constant
   */
  chart(rows, statistic, constant) {
    const { app } = this;
    const { run, root, layerIndex } = app;
    /** @param {StatisticNumber} name */
    const column = (name) => rows.map((row) => row[name]);
    const series = {
      value: { y: column("value"), low: column("low"), high: column("high") },
      shuffled: constant ? null : { y: column("shuffled"), low: column("shuffled_low"), high: column("shuffled_high") },
      random: { y: column("random"), low: column("random_low"), high: column("random_high") },
      window: { y: column("window_only") },
    };
    const x = rows.map((row) => run.layerIds.indexOf(row.layer));
    this.legend.replaceChildren(...statLegend(words.key, series));
    const mark = {
      type: "line",
      xref: "x",
      yref: "paper",
      x0: layerIndex,
      x1: layerIndex,
      y0: 0,
      y1: 1,
      line: { color: cssColour(root, "accent"), width: 1.5, dash: "dot" },
      layer: "below",
    };
    const layout = plotLayout(root, {
      showlegend: false,
      dragmode: false,
      margin: { l: 8, r: 16, t: 16, b: 8 },
      shapes: [mark],
      xaxis: plotAxis(root, words.axis, {
        ...layerTicks(run, this.plot.clientWidth < 560 ? 8 : 16),
        range: [-0.5, run.numLayers - 0.5],
        zeroline: false,
        fixedrange: true,
      }),
      yaxis: plotAxis(root, statName(rows[0]), {
        tickformat: rows[0].decimals === null ? ".0%" : "",
        rangemode: "tozero",
        fixedrange: true,
      }),
    });
    drawPlot(app, this.plot, statTraces(root, x, series), layout, {
      hover: (point) => this.tip(rows[x.indexOf(point.x)]),
      click: (point) => app.setLayer(point.x),
    });
  }

  /** @param {StatisticRow} row */
  tip(row) {
    /**
     * @param {string} label
     * @param {number | null} value
     * @param {number | null} [low]
     * @param {number | null} [high]
     * @returns {[string, string]}
     */
    const line = (label, value, low, high) => [
      label,
      [statNumber(row.decimals, value), statInterval(row.decimals, low, high)].filter(Boolean).join(" · "),
    ];
    const lines = [
      line(words.key.value, row.value, row.low, row.high),
      line(words.key.shuffled, row.shuffled, row.shuffled_low, row.shuffled_high),
      line(words.key.random, row.random, row.random_low, row.random_high),
      line(words.key.window, row.window_only),
    ];
    return statTip(words.tooltip(row.layer), lines);
  }
}
