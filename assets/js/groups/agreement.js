// @ts-check
// Agreement of every pair of layers: how similarly they group the tokens.
import { requestOnce } from "../core/answers.js";
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { colourScale, drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox, lazyDetails, progressBox, tableOf } from "../core/widgets.js";
import { groups as groupsText } from "../strings/groups.js";
/** @import { LayerAgreementPayload } from "../core/payloads.js" */
/** @import { LazyDetails, PlotPoint } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

const text = groupsText.agreement;

const SMALLEST_TOP = 0.05; // a scale that ends at noise would make noise look like structure

export class LayerAgreement {
  /** @type {Run} */
  run;
  /** @type {LayerAgreementPayload} */
  answer;
  /** @type {LazyDetails} */
  details;

  /**
   * @param {App} app
   * @param {(first: number, second: number) => unknown} compare
   */
  constructor(app, compare) {
    this.app = app;
    this.compare = compare;
    this.status = el("div", { class: "fx-status" });
    this.plot = plotElement("fx-agreement", text.chart, "fx-agreement");
    this.key = el("p", { class: "fx-key" });
    this.null = el("p", { class: "fx-help" });
    this.tablePlace = el("div");
    this.result = el("div", { hidden: true }, this.plot, this.key, this.null, this.tablePlace);
    this.node = el(
      "section",
      {},
      el("h3", { class: "fx-subtitle" }, text.title, hintButton(app.tooltip, text.subject, text.hint)),
      el("p", { class: "fx-help" }, text.help),
      this.status,
      this.result,
    );
  }

  async update() {
    const { app } = this;
    const { run } = app;
    this.result.hidden = this.run !== run;
    if (run.numLayers < 2) {
      this.status.replaceChildren(el("p", { class: "fx-muted" }, text.single));
      return;
    }
    if (this.run === run) return this.draw();
    this.status.replaceChildren(progressBox(text.waiting));
    const answer = await requestOnce(app, "agreement");
    if (app.run !== run || !app.isOpen("groups")) return;
    if (answer.error !== undefined) {
      this.status.replaceChildren(alertBox(answer.error, () => this.update()));
      return;
    }
    this.run = run;
    this.answer = answer;
    this.status.replaceChildren();
    this.result.hidden = false;
    this.draw();
  }

  draw() {
    const { app, answer } = this;
    const { run } = app;
    const count = run.numLayers;
    const offDiagonal = answer.agreement.flatMap((row, i) => row.filter((_, j) => j !== i));
    const top = Math.max(SMALLEST_TOP, ...offDiagonal);
    const colours = colourScale(app.root);
    // The diagonal is 1 by definition and would wash out all the rest.
    const z = answer.agreement.map((row, i) => row.map((value, j) => (i === j ? null : value)));
    const heatmap = {
      type: "heatmap",
      z,
      zmin: 0,
      zmax: top,
      colorscale: colours,
      showscale: false,
      hoverinfo: "none",
      hoverongaps: false,
      xgap: 1,
      ygap: 1,
    };
    drawPlot(app, this.plot, [heatmap], this.layout(count), {
      hover: (point) => this.describe(point),
      click: (point) => this.choose(point.y, point.x),
    });
    this.key.replaceChildren(
      el("span", {}, "0"),
      el("span", { class: "fx-ramp", "aria-hidden": "true" }),
      el("span", {}, format.decimal(top, 2)),
    );
    const [low, high] = answer.shuffled ?? [NaN, NaN];
    this.null.textContent = Number.isNaN(low)
      ? ""
      : text.null(format.decimal(low, 3), format.decimal(high, 3), format.count(answer.pairs), answer.seed);
    this.drawTable();
  }

  /** @param {number} count */
  layout(count) {
    const { run, layerIndex, root } = this.app;
    const step = Math.max(1, Math.ceil(count / 12));
    const ticks = range(count).filter((i) => i % step === 0);
    const axis = {
      tickvals: ticks,
      ticktext: ticks.map((i) => String(run.layerIds[i])),
      showgrid: false,
      zeroline: false,
      constrain: "domain",
      fixedrange: true,
    };
    const line = { color: cssColour(root, "accent"), width: 2 };
    return plotLayout(root, {
      dragmode: false,
      margin: { l: 8, r: 8, t: 8, b: 8 },
      xaxis: plotAxis(root, text.layer, { ...axis, range: [-0.5, count - 0.5] }),
      yaxis: plotAxis(root, text.layer, { ...axis, range: [count - 0.5, -0.5], scaleanchor: "x" }),
      shapes: [{ type: "rect", x0: -0.5, x1: count - 0.5, y0: layerIndex - 0.5, y1: layerIndex + 0.5, line }],
    });
  }

  /** @param {PlotPoint} point */
  describe(point) {
    const { run } = this.app;
    return [
      text.pair(run.layerIds[point.y], run.layerIds[point.x]),
      text.value(format.decimal(this.answer.agreement[point.y][point.x], 3)),
    ].map((line) => el("p", { class: "fx-tooltip-text" }, line));
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  choose(row, column) {
    if (row !== column) this.compare(row, column);
  }

  drawTable() {
    const { run, layerIndex } = this.app;
    const open = this.details && this.details.open;
    this.details = lazyDetails(text.table(run.layerIds[layerIndex]), () => this.table());
    this.tablePlace.replaceChildren(this.details);
    this.details.open = Boolean(open);
  }

  table() {
    const { run, layerIndex } = this.app;
    const values = this.answer.agreement[layerIndex];
    const otherLayers = range(run.numLayers)
      .filter((index) => index !== layerIndex)
      .sort((a, b) => values[b] - values[a]);
    return tableOf(
      text.columns,
      otherLayers.map((index) => [
        String(run.layerIds[index]),
        format.decimal(values[index], 3),
        buttonOf(text.compare, () => this.choose(layerIndex, index), {
          "aria-label": text.pair(run.layerIds[layerIndex], run.layerIds[index]),
        }),
      ]),
    );
  }
}
