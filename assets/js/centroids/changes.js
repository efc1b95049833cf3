// @ts-check
// The differences between two centroid files.
import { buttonOf, el } from "../core/dom.js";
import { format, sentence } from "../core/format.js";
import { groupLabel } from "../core/labels.js";
import { LEGEND_ABOVE, drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { callServer } from "../core/server.js";
import { settingInWords } from "../core/setting-words.js";
import { cssColour } from "../core/theme.js";
import { alertBox, lazyDetails, tableOf } from "../core/widgets.js";
import { centroids as text } from "../strings/centroids.js";
import { sparsity as sparsityText } from "../strings/sparsity.js";
/** @import { App } from "./app.js" */
/** @import { CentroidCardPayload, CentroidChangesPayload } from "../core/payloads.js" */
/** @import { PlotPoint } from "../core/types.js" */

export class Changes {
  /** @type {HTMLSelectElement} */
  first;
  /** @type {HTMLSelectElement} */
  second;
  /** @type {CentroidChangesPayload} */
  answer;
  /** @type {HTMLDivElement} */
  chart;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.requestId = 0;
    /** @param {string} label @param {string} test */
    const select = (label, test) => {
      const node = el("select", { "data-testid": test });
      return [node, el("label", { class: "fx-entry" }, el("span", {}, label), node)];
    };
    const [first, firstField] = select(text.first, "fx-file-first");
    const [second, secondField] = select(text.second, "fx-file-second");
    Object.assign(this, { first, second });
    this.button = buttonOf(text.compare, () => this.compare(), {
      class: "fx-button fx-primary",
      "data-testid": "fx-file-compare",
    });
    this.form = el("div", { class: "fx-file-pair" }, firstField, secondField, this.button);
    this.need = el("p", { class: "fx-muted" }, text.needTwo);
    this.output = el("div", { "aria-live": "polite" });
    this.node = el(
      "section",
      { class: "fx-file-changes" },
      el("h2", { class: "fx-title" }, text.compareTitle),
      this.need,
      this.form,
      this.output,
    );
  }

  /** @param {CentroidCardPayload[]} files */
  update(files) {
    const usable = files.filter((file) => !file.problem);
    this.need.hidden = usable.length > 1;
    this.form.hidden = usable.length < 2;
    [this.first, this.second].forEach((select, i) => {
      const previous = select.value;
      select.replaceChildren(
        ...usable.map((file) => el("option", { value: file.sha256 }, `${file.name} (${file.sha256.slice(0, 8)})`)),
      );
      select.value = usable.some((file) => file.sha256 === previous)
        ? previous
        : (usable[i] || usable[0] || { sha256: "" }).sha256;
    });
  }

  async compare() {
    const requestId = (this.requestId += 1);
    const answer = await callServer(() =>
      this.app.server.compare({ first: this.first.value, second: this.second.value }),
    );
    if (requestId !== this.requestId) return;
    if (answer.error !== undefined) this.output.replaceChildren(alertBox(sentence(answer.error)));
    else this.show(answer);
  }

  /** @param {CentroidChangesPayload} answer */
  show(answer) {
    this.answer = answer;
    const rows = answer.settings.map(([name, ...values]) => [
      name.replaceAll("_", " "),
      ...values.map((value) => settingInWords(name, value)),
    ]);
    const settings =
      rows.length === 0
        ? el("p", { class: "fx-muted" }, text.noDifference)
        : el("div", { class: "fx-table-wrap" }, tableOf([text.settingColumn, ...answer.names], rows));
    this.chart = el("div", {
      class: "fx-file-chart",
      role: "group",
      "aria-label": text.distanceTitle,
      "data-testid": "fx-file-distance",
    });
    const missing = answer.layers.reduce(
      (sum, layer) => sum + layer.unmatched[0].length + layer.unmatched[1].length,
      0,
    );
    const distance = answer.problem
      ? [alertBox(sentence(answer.problem))]
      : [
          el("h3", { class: "fx-subtitle" }, text.distanceTitle),
          el("p", { class: "fx-help" }, text.distanceHelp),
          missing ? el("p", { class: "fx-help" }, text.unmatched(format.count(missing))) : "",
          this.chart,
          lazyDetails(text.pairsTable, () => this.pairs()),
        ];
    this.output.replaceChildren(el("h3", { class: "fx-subtitle" }, text.settingsTable), settings, ...distance);
    this.draw();
  }

  draw() {
    if (!this.answer || this.answer.problem) return;
    const { root } = this.app;
    const { layers } = this.answer;
    const x = layers.map((layer) => layer.layer);
    /**
     * @param {string} name
     * @param {"mean" | "worst" | "null"} key
     * @param {string} colour
     * @param {object} [extra]
     */
    const line = (name, key, colour, extra) => ({
      type: "scatter",
      mode: "lines+markers",
      name,
      x,
      y: layers.map((layer) => layer[key]),
      hoverinfo: "none",
      line: { color: cssColour(root, colour), width: 2, ...extra },
      marker: { size: 5 },
    });
    const data = [
      line(text.meanTrace, "mean", "accent"),
      line(text.worstTrace, "worst", "worse", { dash: "dot" }),
      line(text.nullTrace, "null", "muted", { dash: "dash" }),
    ];
    const layout = plotLayout(root, {
      xaxis: plotAxis(root, text.layerAxis),
      yaxis: plotAxis(root, text.distanceAxis, { rangemode: "tozero" }),
      legend: LEGEND_ABOVE,
    });
    /** @param {PlotPoint} point */
    const hover = (point) => [
      el("strong", {}, sparsityText.layerTitle(point.x)),
      el("p", {}, `${point.data.name}: ${format.decimal(point.y, 3)}`),
    ];
    drawPlot(this.app, this.chart, data, layout, { hover });
  }

  pairs() {
    const rows = this.answer.layers.flatMap((layer) =>
      layer.pairs.map(([a, b, distance]) => [
        String(layer.layer),
        groupLabel(a),
        groupLabel(b),
        format.decimal(distance, 3),
      ]),
    );
    return tableOf(text.pairColumns(...this.answer.names), rows);
  }
}
