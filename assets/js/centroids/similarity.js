// @ts-check
// The similarity of a layer's centroids.
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupLabel } from "../core/labels.js";
import { drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { lazyDetails, tableOf } from "../core/widgets.js";
import { centroids as text } from "../strings/centroids.js";
/** @import { SimilarityPayload } from "../core/payloads.js" */
/** @import { PlotHost, PlotPoint } from "../core/types.js" */

const NUMBERS_FROM = 380; // pixels; in a narrower matrix its numbers would touch

export class Similarity {
  /** @type {SimilarityPayload[]} */
  layers;

  /** @param {PlotHost} app */
  constructor(app) {
    this.app = app;
    this.chart = el("div", {
      class: "fx-file-chart fx-file-square",
      role: "group",
      "aria-label": text.similarityTitle,
      "data-testid": "fx-file-similarity",
    });
    this.select = el("select", { onchange: () => this.draw(), "data-testid": "fx-file-layer" });
    this.words = el("p", { class: "fx-help", role: "status" });
    this.table = lazyDetails(text.similarityTable, () => this.values());
    this.node = el(
      "section",
      {},
      el("h3", { class: "fx-subtitle" }, text.similarityTitle),
      el("p", { class: "fx-help" }, text.similarityHelp),
      el("label", { class: "fx-entry fx-file-select" }, el("span", {}, text.similarityLayer), this.select),
      this.words,
      this.chart,
      this.table,
    );
  }

  /** @param {SimilarityPayload[]} layers */
  update(layers) {
    this.layers = layers;
    this.select.replaceChildren(...layers.map((layer, i) => el("option", { value: i }, String(layer.layer))));
    this.select.value = String(Math.floor(layers.length / 2));
    this.draw();
  }

  get matrix() {
    return this.layers[Number(this.select.value)].similarity;
  }

  draw() {
    const { root } = this.app;
    const { matrix } = this;
    const labels = matrix.map((_, group) => groupLabel(group));
    const isWide = matrix.length <= 10 && this.chart.clientWidth >= NUMBERS_FROM;
    /** @param {string} name */
    const colour = (name) => cssColour(root, name);
    const scale = [
      [0, colour("better")],
      [0.5, colour("bg")],
      [1, colour("worse")],
    ];
    const data = [
      {
        type: "heatmap",
        x: labels,
        y: labels,
        z: matrix,
        zmin: -1,
        zmax: 1,
        colorscale: scale,
        hoverinfo: "none",
        xgap: 1,
        ygap: 1,
        text: matrix.map((row) => row.map((value) => (isWide ? format.decimal(value, 2) : ""))),
        texttemplate: "%{text}",
        textfont: { size: 11 },
        colorbar: { thickness: 10, outlinewidth: 0, tickvals: [-1, 0, 1] },
      },
    ];
    const axis = { showgrid: false, zeroline: false, type: "category", fixedrange: true };
    const layout = plotLayout(root, {
      xaxis: plotAxis(root, "", axis),
      yaxis: plotAxis(root, "", { ...axis, autorange: "reversed" }),
    });
    /** @param {PlotPoint} point */
    const hover = (point) =>
      el("p", { class: "fx-tooltip-text" }, text.similarityHover(point.y, point.x, format.decimal(point.z, 2)));
    drawPlot(this.app, this.chart, data, layout, { hover });
    let most = [0, 0, -2];
    matrix.forEach((row, i) => row.forEach((value, j) => i < j && value > most[2] && (most = [i, j, value])));
    this.words.textContent =
      most[2] > -2 ? text.mostAlike(groupLabel(most[0]), groupLabel(most[1]), format.decimal(most[2], 2)) : "";
    this.table.refresh();
  }

  values() {
    const labels = this.matrix.map((_, group) => groupLabel(group));
    return tableOf(
      ["", ...labels],
      this.matrix.map((row, i) => [labels[i], ...row.map((value) => format.decimal(value, 2))]),
    );
  }
}
