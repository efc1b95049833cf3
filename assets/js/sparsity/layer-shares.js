// @ts-check
// The chart of every layer's pairs kept, by cause, with what nulls and settings that are tried would keep.
import { range, sum } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { layerFrame, layerTicks } from "../core/layer-axis.js";
import { drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { CAUSES, describeLayer } from "./causes.js";
import { budget as budgetText } from "../strings/budget.js";
import { sparsity as text } from "../strings/sparsity.js";
/** @import { DistanceMeanPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { App } from "../shell/app.js" */
/** @import { BudgetTrial } from "./budget.js" */

const SHARE_TICKS = [0, 0.25, 0.5, 0.75, 1];

export class LayerShares {
  /**
   * @param {App} app
   * @param {BudgetTrial} budget
   */
  constructor(app, budget) {
    this.app = app;
    this.budget = budget;
    /** @type {{ run: Run, answer: DistanceMeanPayload } | null} */
    this.nulls = null;
    this.node = plotElement("fx-layers", text.layersTitle, "fx-layers-chart");
    this.trialNote = el("p", { class: "fx-help", hidden: true }, budgetText.layersHint);
  }

  /**
   * Nulls of every layer, known once the pairs of all layers are counted by distance.
   * @param {DistanceMeanPayload} answer
   */
  takeNulls(answer) {
    if (this.nulls && this.nulls.answer === answer) return;
    this.nulls = { run: this.app.run, answer };
    this.draw();
  }

  draw() {
    const { app } = this;
    const { run, root } = app;
    if (this.nulls && this.nulls.run !== run) this.nulls = null;
    const keptCauses = CAUSES.filter((cause) => cause !== "dropped");
    const bars = keptCauses.map((cause) => ({
      type: "bar",
      orientation: "h",
      name: text.causes[cause],
      y: range(run.numLayers),
      x: run.layers.map(({ pairs }) => pairs[cause] / sum(Object.values(pairs))),
      hoverinfo: "none",
      marker: { color: cssColour(root, `cause-${cause}`) },
    }));
    drawPlot(app, this.node, [...bars, ...this.nullTraces(), ...this.trialTraces()], this.layout(), {
      hover: (point) => describeLayer(run, point.pointNumber),
      click: (point) => app.setLayer(point.pointNumber),
    });
  }

  nullTraces() {
    if (!this.nulls) return [];
    const { layer_shuffled: shuffled, layer_window_only: alone } = this.nulls.answer;
    const colour = cssColour(this.app.root, "text");
    const ground = cssColour(this.app.root, "bg");
    return [
      {
        type: "scatter",
        mode: "lines",
        x: alone.flatMap((share) => [share, share]),
        y: alone.flatMap((_, index) => [index - 0.5, index + 0.5]),
        hoverinfo: "skip",
        line: { dash: "dash", width: 2, color: colour },
      },
      {
        type: "scatter",
        mode: "markers",
        x: shuffled,
        y: range(shuffled.length),
        hoverinfo: "skip",
        marker: { symbol: "diamond", size: 8, color: colour, line: { width: 1, color: ground } },
      },
    ];
  }

  /** What the settings that are tried would keep in every layer. */
  trialTraces() {
    const { trial } = this.budget;
    const shares = trial.isOwn ? null : trial.keptOfLayers();
    this.trialNote.hidden = shares === null;
    if (shares === null) return [];
    const line = { width: 3, color: cssColour(this.app.root, "accent") };
    return [
      {
        type: "scatter",
        mode: "markers",
        x: shares,
        y: range(shares.length),
        hoverinfo: "skip",
        marker: { symbol: "line-ns-open", size: 12, color: line.color, line },
      },
    ];
  }

  layout() {
    const { run, root, layerIndex } = this.app;
    return plotLayout(root, {
      margin: { l: 8, r: 24, t: 32, b: 8 },
      barmode: "stack",
      bargap: 0.25,
      dragmode: false,
      showlegend: false,
      shapes: [layerFrame(root, layerIndex)],
      xaxis: plotAxis(root, text.keptAxis, {
        range: [0, 1],
        tickvals: SHARE_TICKS,
        tickformat: ".0%",
        fixedrange: true,
      }),
      yaxis: plotAxis(root, text.layerAxis, {
        range: [run.numLayers - 0.4, -0.6],
        ...layerTicks(run),
        showgrid: false,
        zeroline: false,
        fixedrange: true,
      }),
    });
  }
}
