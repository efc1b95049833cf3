// @ts-check
// What the mask costs head by head: what full attention in one head alone would win, estimated for all heads, measured
// for the best.
import { ComparePart } from "./part.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { headCount } from "../core/heads.js";
import { layerFrame, layerTicks } from "../core/layer-axis.js";
import { colourScale, drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { tooltipHead, tooltipRow } from "../core/tooltip.js";
import { tableOf } from "../core/widgets.js";
import { heads as text } from "../strings/compare.js";
/** @import { HeadCostPayload, HeadCostsPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { JobQuestion } from "../core/types.js" */

const MILLI = 1000; // nats are shown in thousandths

export class CompareHeads extends ComparePart {
  /** @type {Run} */
  run;
  /** @type {HeadCostsPayload | null} */
  answer = null;

  /** @param {App} app */
  constructor(app) {
    super(app, "heads", text);
    this.kind = "heads";
    /** @type {{ state: JobQuestion, start: JobQuestion }} */
    this.questions = { state: "compare_heads", start: "compare_heads_start" };
    this.verdict = el("div", { class: "fx-verdict", "data-testid": "fx-heads-verdict" });
    this.plot = plotElement("fx-heads", text.plotLabel, "fx-head-costs");
    this.table = el("div", { class: "fx-table-scroll", tabindex: "0", role: "region", "aria-label": text.tableLabel });
    this.results = el(
      "div",
      { class: "fx-compare-results", hidden: true },
      this.verdict,
      el("p", { class: "fx-help" }, text.chart),
      this.plot,
      el("h4", { class: "fx-link-title" }, text.tableTitle),
      this.table,
    );
    this.node.append(
      el("p", { class: "fx-help" }, text.help),
      el(
        "div",
        { class: "fx-form" },
        this.button(text.start, () => this.start({})),
      ),
      this.line.node,
      this.results,
    );
  }

  update() {
    if (this.run !== this.app.run) {
      this.run = this.app.run;
      this.answer = null;
      this.results.hidden = true;
    }
    if (this.answer !== null) this.draw();
    this.watch();
  }

  /** @param {HeadCostsPayload} answer */
  received(answer) {
    this.results.hidden = answer.heads.length === 0;
    this.startButton.textContent = answer.heads.length === 0 ? text.start : text.again;
    if (answer.heads.length === 0 || JSON.stringify(answer.heads) === JSON.stringify(this.answer?.heads)) return;
    this.answer = answer;
    this.verdict.replaceChildren(...sentences(answer, this.run.numTokens).map((words) => el("p", {}, words)));
    this.table.replaceChildren(this.rows(answer));
    this.draw();
  }

  draw() {
    const { answer, app, run } = this;
    if (answer === null) return;
    const count = headsIn(answer);
    const z = run.layerIds.map(() => /** @type {(number | null)[]} */ (Array(count).fill(null)));
    /** @type {Map<string, HeadCostPayload>} */
    const cells = new Map();
    for (const cost of answer.heads) {
      const layer = run.layerIds.indexOf(cost.layer);
      z[layer][cost.head] = -changeOf(cost, answer) * MILLI;
      cells.set(`${layer} ${cost.head}`, cost);
    }
    const trace = {
      type: "heatmap",
      z,
      x: [...Array(count).keys()],
      y: [...run.layerIds.keys()],
      zmin: 0,
      zmax: Math.max(...z.flat().map((value) => value ?? 0), 0.1),
      colorscale: colourScale(app.root),
      colorbar: { title: { text: text.colourBar, side: "right" }, thickness: 12, outlinewidth: 0 },
      hoverinfo: "none",
      hoverongaps: false,
      xgap: 1,
      ygap: 1,
    };
    const layout = plotLayout(app.root, {
      dragmode: false,
      shapes: [layerFrame(app.root, app.layerIndex)],
      xaxis: plotAxis(app.root, text.head, { dtick: 1, showgrid: false, zeroline: false, fixedrange: true }),
      yaxis: plotAxis(app.root, text.layer, {
        range: [run.numLayers - 0.5, -0.5],
        ...layerTicks(run),
        showgrid: false,
        zeroline: false,
        fixedrange: true,
      }),
    });
    /** @param {number[]} point */
    const cell = ([layer, head]) => cells.get(`${layer} ${head}`);
    drawPlot(app, this.plot, [trace], layout, {
      hover: (point) => this.describe(cell(/** @type {number[]} */ (point.pointNumber))),
      click: (point) => this.go(cell(/** @type {number[]} */ (point.pointNumber))),
    });
  }

  /** @param {HeadCostPayload | undefined} cost */
  describe(cost) {
    if (cost === undefined) return null;
    const focus = /** @type {number} */ (this.answer?.nll_focus);
    return [
      tooltipHead(text.cell(cost.layer, cost.head)),
      tooltipRow(text.columns.estimated, milli(cost.estimated)),
      tooltipRow(text.columns.measured, cost.nll === null ? text.none : milli(cost.nll - focus)),
      tooltipRow(text.columns.dropped, cost.dropped === null ? text.none : format.percent(cost.dropped, 1)),
    ];
  }

  /** @param {HeadCostPayload | undefined} cost */
  go(cost) {
    if (cost === undefined) return;
    const { app, run } = this;
    const layer = run.layerIds.indexOf(cost.layer);
    app.setLayer(layer);
    const { parts } = run.layers[layer];
    const shared = parts[0].query_heads ? headCount(parts) / headsIn(/** @type {HeadCostsPayload} */ (this.answer)) : 1;
    const head = cost.head * shared;
    const part = parts.findIndex(({ heads }) => heads.includes(head));
    if (part >= 0) app.setPart(part, head);
  }

  /** @param {HeadCostsPayload} answer */
  rows(answer) {
    const focus = /** @type {number} */ (answer.nll_focus);
    const measured = answer.heads.filter(({ nll }) => nll !== null);
    return tableOf(
      [text.columns.place, text.columns.measured, text.columns.estimated, text.columns.dropped],
      measured.map(({ layer, head, nll, estimated, dropped }) => [
        text.cell(layer, head),
        milli(/** @type {number} */ (nll) - focus),
        milli(estimated),
        dropped === null ? text.none : format.percent(dropped, 1),
      ]),
      { "data-testid": "fx-heads-table" },
    );
  }
}

/** @param {number} nats */
const milli = (nats) => format.signed(nats * MILLI, 1);

/**
 * The measured change of the loss, else the estimated one.
 * @param {HeadCostPayload} cost
 * @param {HeadCostsPayload} answer
 */
const changeOf = ({ nll, estimated }, answer) =>
  nll === null ? estimated : nll - /** @type {number} */ (answer.nll_focus);

/**
 * @param {HeadCostsPayload} answer
 * @param {number} numTokens
 */
function sentences(answer, numTokens) {
  const [full, focus, tokens] = /** @type {number[]} */ ([answer.nll_full, answer.nll_focus, answer.num_tokens]);
  const lost = focus - full;
  const best = answer.heads.filter(({ nll }) => nll !== null && nll < focus);
  const lines = [text.loss(milli(lost), format.count(tokens), format.count(numTokens))];
  if (best.length === 0) return [...lines, text.noneWins];
  const [first] = best;
  /** @param {HeadCostPayload[]} costs */
  const won = (costs) =>
    format.decimal(costs.reduce((sum, { nll }) => sum + focus - /** @type {number} */ (nll), 0) * MILLI, 1);
  lines.push(text.first(text.cell(first.layer, first.head), won([first])), text.sum(best.length, won(best)));
  return lines;
}

/** @param {HeadCostsPayload} answer */
const headsIn = (answer) => Math.max(...answer.heads.map(({ head }) => head)) + 1;
