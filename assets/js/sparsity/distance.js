// @ts-check
// Pairs kept by distance, of one layer or of all, next to what random groups and the window alone would keep.
import { mean, range, sum } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { someFull } from "../core/heads.js";
import { LayerLoader } from "../core/loader.js";
import { drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { hintButton, tooltipHead, tooltipRow } from "../core/tooltip.js";
import { alertBox, choiceOf, lazyDetails, progressBox, tableOf } from "../core/widgets.js";
import { heads as headsText } from "../strings/heads.js";
import { pairs as pairsText, sparsity as sparsityText } from "../strings/sparsity.js";
/** @import { LoaderHandlers } from "../core/loader.js" */
/** @import { DistanceMeanPayload, DistancePayload } from "../core/payloads.js" */
/** @import { Cause } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */

/** @typedef {keyof typeof text.scopes} Scope */

const text = pairsText.distance;
const causeNames = sparsityText.causes;
const nulls = pairsText.nulls;

const SHARE_TICKS = [0, 0.25, 0.5, 0.75, 1];

const MEAN = "mean";

export class DistanceChart {
  /** Of the open layer, or of all. @type {DistancePayload | DistanceMeanPayload} */
  answer;
  /** The causes of the answer. @type {Cause[]} */
  causes;
  /** Of each bin. @type {number[]} */
  pairs;
  /** By cause and bin. @type {number[][]} */
  shares;

  /**
   * `nullsReady(answer)` gets the nulls of every layer once they are known.
   * @param {App} app
   * @param {(answer: DistanceMeanPayload) => unknown} nullsReady
   */
  constructor(app, nullsReady) {
    this.app = app;
    /** @type {Scope} */
    this.scope = "layer";
    this.nullsReady = nullsReady;
    this.status = el("div", { class: "fx-status" });
    this.plot = el("div", { class: "fx-plot fx-distance", role: "group", "data-testid": "fx-distance" });
    this.far = el("p", { class: "fx-finding" });
    this.meanNote = el("p", { class: "fx-help" }, headsText.mean);
    this.table = lazyDetails(text.table, () => this.buildTable());
    this.node = el(
      "section",
      { class: "fx-part" },
      el("h3", { class: "fx-subtitle" }, text.title),
      el("p", { class: "fx-help" }, text.help),
      el(
        "div",
        { class: "fx-toolbar" },
        choiceOf(text.show, text.scopes, this.scope, (scope) => this.choose(scope)),
        nullLegend(app),
      ),
      this.status,
      this.meanNote,
      this.plot,
      this.far,
      this.table,
    );
    /**
     * @template {DistancePayload | DistanceMeanPayload} T
     * @param {Scope} scope
     * @param {(answer: T) => unknown} onAnswer
     * @returns {LoaderHandlers<T>}
     */
    const handlers = (scope, onAnswer) => ({
      open: () => app.isOpen("sparsity"),
      waiting: () => this.scope === scope && this.wait(),
      ready: (answer) => {
        onAnswer(answer);
        if (this.scope === scope) this.show(answer);
      },
      failed: (message) => this.scope === scope && this.status.replaceChildren(alertBox(message, () => this.update())),
    });
    this.layer = new LayerLoader(
      (run, layer) => app.request("pair_distances", { run, layer }),
      handlers("layer", () => {}),
    );
    /** @type {LayerLoader<DistanceMeanPayload, string>} */
    this.mean = new LayerLoader(
      (run) => app.request("pair_distances_mean", { run }),
      handlers(MEAN, (answer) => nullsReady(answer)),
    );
  }

  /** @param {Scope} scope */
  choose(scope) {
    this.scope = scope;
    this.update();
  }

  update() {
    const { run, layerIndex } = this.app;
    this.meanNote.hidden = this.scope === MEAN || run.layers[layerIndex].parts.length === 1;
    this.layer.request(run.info.run_id, run.layerIds[layerIndex]);
    this.mean.request(run.info.run_id, MEAN);
  }

  wait() {
    this.plot.classList.add("fx-stale");
    this.status.replaceChildren(progressBox(text.waiting));
  }

  /** @param {DistancePayload | DistanceMeanPayload} answer */
  show(answer) {
    this.answer = answer;
    this.causes = /** @type {Cause[]} */ (answer.causes);
    if ("shares" in answer) {
      this.pairs = answer.pairs;
      this.shares = answer.shares;
    } else {
      this.pairs = answer.first.map((_, bin) => sum(answer.counts.map((counts) => counts[bin])));
      this.shares = answer.counts.map((counts) => counts.map((count, bin) => count / this.pairs[bin]));
    }
    this.status.replaceChildren();
    this.plot.classList.remove("fx-stale");
    this.plot.setAttribute("aria-label", text.plotLabel(text.scopes[this.scope]));
    this.far.textContent = this.farSentence();
    this.table.refresh();
    drawPlot(this.app, this.plot, [...this.bars(), ...this.lines()], this.layout(), {
      hover: (point) => this.describe(point.pointNumber),
    });
  }

  bars() {
    const bars = this.causes.map((cause, i) => ({
      type: "bar",
      name: causeNames[cause],
      x: range(this.pairs.length),
      y: this.shares[i],
      hoverinfo: "none",
      marker: { color: cssColour(this.app.root, `cause-${cause}`) },
    }));
    return bars.filter((_, i) => this.causes[i] !== "dropped");
  }

  lines() {
    /** @param {number[]} y @param {string} dash @param {string} colour */
    const line = (y, dash, colour) => ({
      type: "scatter",
      mode: "lines",
      x: range(this.pairs.length),
      y,
      hoverinfo: "skip",
      line: { dash, width: 2.5, shape: "hvh", color: cssColour(this.app.root, colour) },
    });
    return [line(this.answer.window_only, "dot", "muted"), line(this.answer.shuffled, "solid", "text")];
  }

  // Share of pairs beyond window and sinks, in one number: the groups' and that of shuffled ones.
  farSentence() {
    const { beyond, sharing } = this.answer;
    const { layers } = this.app.run;
    const full = someFull(this.scope === MEAN ? layers : [layers[this.app.layerIndex]]);
    const measured = beyond.filter((share) => share !== null);
    return measured.length < beyond.length
      ? ""
      : text.far(format.percent(mean(measured), 1), format.percent(mean([sharing].flat()), 1), full);
  }

  /** @param {number} at */
  bin(at) {
    return text.bin(format.count(this.answer.first[at]), format.count(this.answer.last[at]));
  }

  /** @param {number} at */
  describe(at) {
    const { answer } = this;
    const pairs = format.count(this.pairs[at]);
    const title =
      "layers" in answer
        ? text.binTitleMean(this.bin(at), pairs, format.count(answer.layers))
        : text.binTitle(this.bin(at), pairs);
    /** @param {Cause} cause */
    const swatch = (cause) => el("span", { class: `fx-cause fx-cause-${cause}`, "aria-hidden": "true" });
    return [
      tooltipHead(title),
      ...this.causes.map((cause, i) =>
        tooltipRow([swatch(cause), causeNames[cause]], format.percent(this.shares[i][at], 1)),
      ),
      "kept_least" in answer
        ? tooltipRow(
            text.span,
            text.range(format.percent(answer.kept_least[at], 1), format.percent(answer.kept_most[at], 1)),
          )
        : null,
      tooltipRow(nulls.shuffled, format.percent(answer.shuffled[at], 1)),
      tooltipRow(nulls.windowOnly, format.percent(answer.window_only[at], 1)),
    ].filter(Boolean);
  }

  layout() {
    const { root } = this.app;
    const every = Math.ceil(this.pairs.length / (this.plot.clientWidth < 600 ? 7 : 16));
    const ticks = range(this.pairs.length).filter((bin) => bin % every === 0);
    return plotLayout(root, {
      barmode: "stack",
      bargap: 0.12,
      dragmode: false,
      showlegend: false,
      xaxis: plotAxis(root, text.axis, {
        tickvals: ticks,
        ticktext: ticks.map((bin) => this.bin(bin)),
        showgrid: false,
        zeroline: false,
        fixedrange: true,
      }),
      yaxis: plotAxis(root, text.share, {
        range: [0, 1.02],
        tickvals: SHARE_TICKS,
        tickformat: ".0%",
        fixedrange: true,
      }),
    });
  }

  buildTable() {
    if (!this.answer) return "";
    const { causes } = this;
    const { shuffled, window_only: alone } = this.answer;
    const rows = this.pairs.map((_, bin) => [
      this.bin(bin),
      ...causes.map((_, i) => format.percent(this.shares[i][bin], 1)),
      format.percent(shuffled[bin], 1),
      format.percent(alone[bin], 1),
    ]);
    return tableOf(
      [text.distanceColumn, ...causes.map((cause) => causeNames[cause]), nulls.shuffled, nulls.windowOnly],
      rows,
    );
  }
}

/** @param {App} app */
const nullLegend = (app) =>
  el(
    "ul",
    { class: "fx-causes" },
    el(
      "li",
      {},
      el("span", { class: "fx-line-sample fx-line-solid", "aria-hidden": "true" }),
      nulls.shuffled,
      hintButton(app.tooltip, nulls.shuffled, nulls.shuffledHint),
    ),
    el(
      "li",
      {},
      el("span", { class: "fx-line-sample fx-line-dotted", "aria-hidden": "true" }),
      nulls.windowOnly,
      hintButton(app.tooltip, nulls.windowOnly, nulls.windowOnlyHint),
    ),
  );
