// @ts-check
// The balance of groups in one run with the file: shares and largest group, layer by layer.
import { mean } from "../core/arrays.js";
import { groupColour } from "../core/colours.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupLabel } from "../core/labels.js";
import { LEGEND_ABOVE, drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { cssColour, themeOf } from "../core/theme.js";
import { hintButton, tooltipHead, tooltipRow } from "../core/tooltip.js";
import { tableOf } from "../core/widgets.js";
import { centroids as text } from "../strings/centroids.js";
import { common } from "../strings/common.js";
import { runs as runsText } from "../strings/runs.js";
import { sparsity as sparsityText } from "../strings/sparsity.js";
/** @import { CentroidRunPayload, LayerBalancePayload } from "../core/payloads.js" */
/** @import { PlotHost, PlotPoint } from "../core/types.js" */

// One run's groups: shares, the largest one and the balance, layer by layer.
export class Balance {
  /** @type {CentroidRunPayload[]} */
  runs;

  /** @param {PlotHost} app */
  constructor(app) {
    this.app = app;
    this.chart = el("div", {
      class: "fx-file-chart",
      role: "group",
      "aria-label": text.sharesTitle,
      "data-testid": "fx-file-balance",
    });
    this.line = el("div", {
      class: "fx-file-chart",
      role: "group",
      "aria-label": text.dominanceTitle,
      "data-testid": "fx-file-dominance",
    });
    this.select = el("select", { onchange: () => this.draw(), "data-testid": "fx-file-run" });
    this.words = el("p", { class: "fx-file-finding", role: "status", "data-testid": "fx-file-finding" });
    /** @param {string} title @param {string} hint @param {HTMLElement} chart */
    const part = (title, hint, chart) =>
      el("div", {}, el("h4", { class: "fx-file-part" }, title, hintButton(app.tooltip, title, hint)), chart);
    this.body = el(
      "div",
      {},
      el("label", { class: "fx-entry fx-file-select" }, el("span", {}, text.balanceRun), this.select),
      this.words,
      el(
        "div",
        { class: "fx-file-charts" },
        part(text.sharesTitle, text.sharesHint, this.chart),
        part(text.dominanceTitle, text.dominanceHint, this.line),
      ),
    );
    this.none = el("p", { class: "fx-muted" }, text.balanceNone);
    this.node = el(
      "section",
      { class: "fx-file-whole" },
      el("h3", { class: "fx-subtitle" }, text.balanceTitle),
      el("p", { class: "fx-help" }, text.balanceHelp),
      this.none,
      this.body,
    );
    this.rows = el("div", {
      class: "fx-table-scroll",
      tabindex: "0",
      role: "region",
      "aria-label": text.balanceTable,
      "data-testid": "fx-file-layers",
    });
    this.table = el(
      "section",
      {},
      el("h3", { class: "fx-subtitle" }, text.balanceTable),
      el("p", { class: "fx-help" }, text.balanceTableHelp),
      this.rows,
    );
  }

  /** @param {CentroidRunPayload[]} runs */
  update(runs) {
    this.runs = runs;
    this.none.hidden = runs.length > 0;
    this.body.hidden = this.table.hidden = runs.length === 0;
    this.select.replaceChildren(
      ...runs.map((run, i) =>
        el(
          "option",
          { value: i },
          `${run.name || run.title} · ${runsText.tokens(format.count(run.num_tokens), [])} · ${run.run_id}`,
        ),
      ),
    );
    if (runs.length > 0) this.draw();
  }

  get run() {
    return this.runs[Number(this.select.value) || 0];
  }

  get even() {
    return 1 / this.run.layers[0].shares.length;
  }

  draw() {
    this.words.textContent = this.finding();
    this.rows.replaceChildren(this.values());
    this.drawShares();
    this.drawDominance();
  }

  finding() {
    const { layers } = this.run;
    const worst = layers.reduce((most, layer) => (layer.dominance > most.dominance ? layer : most));
    const least = layers.reduce((low, layer) => (layer.balance < low.balance ? layer : low));
    /** @param {number} share */
    const percent = (share) => format.percent(share, 1);
    return text.balanceFinding(
      [percent(mean(layers.map((layer) => layer.dominance))), percent(worst.dominance), worst.layer],
      [format.count(layers[0].shares.length), percent(this.even)],
      [format.decimal(mean(layers.map((layer) => layer.balance)), 3), format.decimal(least.balance, 3), least.layer],
    );
  }

  layerAxis() {
    return plotAxis(this.app.root, text.layerAxis, { dtick: this.run.layers.length > 12 ? 5 : 1 });
  }

  drawShares() {
    const { root } = this.app;
    const theme = themeOf(root);
    const { layers } = this.run;
    const groups = layers[0].shares.map((_, group) => ({
      type: "bar",
      name: common.group(groupLabel(group)),
      x: layers.map((layer) => layer.layer),
      y: layers.map((layer) => layer.shares[group]),
      marker: { color: groupColour(group, theme) },
      hoverinfo: "none",
    }));
    const layout = plotLayout(root, {
      barmode: "stack",
      bargap: 0.15,
      showlegend: false,
      xaxis: this.layerAxis(),
      yaxis: plotAxis(root, text.shareAxis, { tickformat: ".0%", range: [0, 1] }),
    });
    /** @param {PlotPoint} point */
    const hover = (point) => [
      el("strong", {}, sparsityText.layerTitle(point.x)),
      el("p", {}, `${point.data.name}: ${format.percent(point.y, 1)}`),
      el("p", { class: "fx-muted" }, text.even(format.percent(this.even, 1))),
    ];
    drawPlot(this.app, this.chart, groups, layout, { hover });
  }

  drawDominance() {
    const { root } = this.app;
    const { layers } = this.run;
    const x = layers.map((layer) => layer.layer);
    /** @param {string} name @param {number[]} y @param {string} colour @param {object} [more] */
    const line = (name, y, colour, more) => ({
      type: "scatter",
      mode: "lines",
      name,
      x,
      y,
      hoverinfo: "none",
      line: { color: cssColour(root, colour), width: 2, ...more },
    });
    const data = [
      {
        ...line(
          text.dominanceTrace,
          layers.map((layer) => layer.dominance),
          "accent",
        ),
        mode: "lines+markers",
        marker: { size: 5 },
      },
      {
        ...line(
          text.evenTrace(format.count(layers[0].shares.length)),
          layers.map(() => this.even),
          "muted",
          { dash: "dash" },
        ),
        hoverinfo: "skip",
      },
    ];
    const layout = plotLayout(root, {
      xaxis: this.layerAxis(),
      yaxis: plotAxis(root, text.shareAxis, { tickformat: ".0%", rangemode: "tozero" }),
      legend: LEGEND_ABOVE,
    });
    drawPlot(this.app, this.line, data, layout, { hover: (point) => this.describe(layers[point.pointNumber]) });
  }

  /** @param {LayerBalancePayload} layer */
  describe(layer) {
    const largest = layer.shares.indexOf(Math.max(...layer.shares));
    return [
      tooltipHead(sparsityText.layerTitle(layer.layer)),
      tooltipRow(text.largestIs(groupLabel(largest)), format.percent(layer.dominance, 1)),
      tooltipRow(text.evenIs, format.percent(this.even, 1)),
      tooltipRow(text.balance, format.decimal(layer.balance, 3)),
    ];
  }

  values() {
    const { tooltip } = this.app;
    const columns = [
      text.similarityLayer,
      [text.dominance, hintButton(tooltip, text.dominance, text.dominanceHint)],
      [text.balance, hintButton(tooltip, text.balance, text.balanceHint)],
    ];
    return tableOf(
      columns,
      this.run.layers.map((layer) => [
        String(layer.layer),
        format.percent(layer.dominance, 1),
        format.decimal(layer.balance, 3),
      ]),
    );
  }
}
