// @ts-check
// What follows from changes made to a run by hand: loss by token, predictions, groups and pairs.
import { ChangeForm, changeWords } from "./change-form.js";
import { drawLossChart } from "./loss-chart.js";
import { ComparePart } from "./part.js";
import { PairChanges } from "./pair-changes.js";
import { addressOf } from "../core/address.js";
import { decodeBase64 } from "../core/bytes.js";
import { copyFrom } from "../core/clipboard.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { interval95, sideOfZero } from "../core/interval.js";
import { plotElement } from "../core/plot.js";
import { predictionList } from "../core/prediction-list.js";
import { selectToken } from "../core/selection.js";
import { tokenSummary } from "../core/token-text.js";
import { tableOf } from "../core/widgets.js";
import { whatIf as text } from "../strings/what-if.js";
/** @import { JobPayload, WhatIfPayload, WhatIfResultPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { Details, JobQuestion, PlotPoint } from "../core/types.js" */

const SAVE = "what_if_save";
const SEPARATOR = ",";

export class CompareWhatIf extends ComparePart {
  /** @type {Run} */
  run;
  /** Changes in force. @type {string[]} */
  changes = [];
  /** Earlier lists of changes, for Undo. @type {string[][]} */
  history = [];
  /** The run that the newest comparison saved. @type {string | null} */
  saved = null;
  /** @type {WhatIfResultPayload | null} */
  result = null;
  /** @type {(number | null)[]} */
  differences = [];

  /** @param {App} app */
  constructor(app) {
    super(app, "what-if", text);
    this.kind = "what_if";
    this.poll = 150;
    /** @type {{ state: JobQuestion, start: JobQuestion }} */
    this.questions = { state: "what_if", start: "what_if_start" };
    this.form = new ChangeForm(app);
    this.list = el("ul", { class: "fx-changes", "aria-label": text.listLabel, "data-testid": "fx-changes" });
    this.undo = buttonOf(text.undo, () => this.back(), { "data-testid": "fx-what-if-undo" });
    this.clear = buttonOf(text.clear, () => this.set([]));
    this.save = buttonOf(text.save, () => this.start({}, SAVE), { "data-testid": "fx-what-if-save" });
    this.savedPlace = el("div", { role: "status" });
    this.verdict = el("div", { class: "fx-verdict", "data-testid": "fx-what-if-verdict" });
    this.chart = plotElement("fx-loss", text.chartTitle, "fx-what-if-chart");
    this.prediction = el("div", { "data-testid": "fx-what-if-prediction" });
    this.pairs = new PairChanges(app);
    this.table = el("div", { class: "fx-table-scroll", tabindex: "0", role: "region", "aria-label": text.layersLabel });
    this.command = el("code", {});
    this.results = el(
      "div",
      { class: "fx-compare-results", hidden: true },
      this.verdict,
      el("h4", { class: "fx-link-title" }, text.chartTitle),
      el("p", { class: "fx-help" }, text.chartHint),
      this.chart,
      this.prediction,
      this.pairs.node,
      el("h4", { class: "fx-link-title" }, text.layersTitle),
      this.table,
      el(
        "p",
        { class: "fx-help fx-command" },
        `${text.command}: `,
        this.command,
        this.copyButton(),
      ),
    );
    this.node.append(
      el("p", { class: "fx-help" }, text.help),
      this.form.node,
      el(
        "div",
        { class: "fx-change-actions" },
        this.button(text.add, () => this.set([...this.changes, this.form.change])),
        this.undo,
        this.clear,
        this.save,
      ),
      this.list,
      this.line.node,
      this.savedPlace,
      this.results,
    );
  }

  copyButton() {
    const button = buttonOf(text.copy, () =>
      copyFrom(button, this.command.textContent ?? "", text),
    );
    return button;
  }

  update() {
    if (this.run !== this.app.run) {
      this.run = this.app.run;
      this.history = [];
      this.result = this.saved = null;
      this.savedPlace.replaceChildren();
      this.form.reset();
      const addressed = addressOf("compare", this.run).get("set");
      const changes = addressed === null ? [] : addressed.split(SEPARATOR);
      this.showChanges(changes);
      if (changes.length > 0) this.start({});
      else this.watch();
      return;
    }
    this.form.layerOpened();
    if (this.result !== null) this.drawChart();
    this.watch();
  }

  selectionChanged() {
    if (this.form.asksForToken) this.form.reset();
    if (this.result !== null) {
      this.drawChart();
      this.watch();
    }
  }

  /** @override @param {JobPayload | null} job */
  isOwnJob(job) {
    return super.isOwnJob(job) || (job !== null && job.kind === SAVE && job.run_id === this.app.run.info.run_id);
  }

  /** The selected token, where a single one is. */
  get token() {
    const { selection } = this.app;
    return selection !== null && selection.size === 1 ? selection.positions[0] : null;
  }

  /** Every question names the changes, the layer and the token. @override */
  watch(what = this.questions.state, details = {}) {
    const layer = this.run.layerIds[this.app.layerIndex];
    return super.watch(what, { changes: this.changes, layer, token: this.token, ...details });
  }

  /** @param {string[]} changes */
  set(changes) {
    return this.apply(changes, [...this.history, this.changes]);
  }

  back() {
    return this.apply(this.history.at(-1) ?? [], this.history.slice(0, -1));
  }

  /**
   * @param {string[]} changes
   * @param {string[][]} history
   */
  async apply(changes, history) {
    const before = { changes: this.changes, history: this.history };
    this.history = history;
    this.savedPlace.replaceChildren();
    this.showChanges(changes);
    const taken = await (changes.length === 0 ? this.watch() : this.start({}));
    if (taken || this.changes !== changes) return taken;
    this.history = before.history; // what was refused is not in force
    this.showChanges(before.changes);
    return false;
  }

  /** @param {string[]} changes */
  showChanges(changes) {
    this.changes = changes;
    const items = changes.map((change, number) => {
      const words = changeWords(this.run, change);
      const rest = changes.filter((_, other) => other !== number);
      return el(
        "li",
        {},
        words,
        buttonOf("×", () => this.set(rest), { "aria-label": text.remove(words), class: "fx-button fx-remove" }),
      );
    });
    this.list.replaceChildren(...(items.length > 0 ? items : [el("li", { class: "fx-muted" }, text.none)]));
    this.allow();
    this.app.writeAddress();
  }

  /** Changes follow one another: none is made, taken back or saved while another one is measured. */
  allow() {
    const waits = this.starting || this.busy;
    this.undo.disabled = waits || this.history.length === 0;
    this.clear.disabled = this.save.disabled = waits || this.changes.length === 0;
    for (const button of this.list.getElementsByTagName("button")) button.disabled = waits;
  }

  /** @override */
  started() {
    this.allow();
  }

  /** @override @param {Details} details @param {JobQuestion} [what] */
  start(details, what) {
    const answered = super.start(details, what);
    this.allow();
    return answered;
  }

  /** For the address. */
  get addressed() {
    return this.changes.length > 0 ? this.changes.join(SEPARATOR) : null;
  }

  /** @param {WhatIfPayload} answer */
  received(answer) {
    this.allow();
    if (answer.saved !== null && answer.saved !== this.saved) this.showSaved(answer.saved);
    this.saved = answer.saved;
    this.results.hidden = answer.result === null;
    this.command.textContent = answer.command;
    if (answer.result === null) {
      this.result = null;
      return;
    }
    if (JSON.stringify(answer.result) !== JSON.stringify(this.result)) this.show(answer.result);
    this.pairs.show(answer.pairs);
    this.showPrediction(answer);
  }

  /** @param {string} saved */
  showSaved(saved) {
    this.savedPlace.replaceChildren(
      el("p", {}, `${text.saved(saved)} `, buttonOf(text.open, () => this.app.open(saved))),
    );
  }

  /** @param {WhatIfResultPayload} result */
  show(result) {
    this.result = result;
    const changes = new Float32Array(decodeBase64(result.changes).buffer);
    this.differences = Array.from(this.run.pieces, (_, pos) => (pos > 0 && pos < changes.length ? changes[pos] : null));
    this.verdict.replaceChildren(...sentences(result, this.run.numTokens).map((words) => el("p", {}, words)));
    this.table.replaceChildren(
      tableOf(
        [text.columns.layer, text.columns.moved, text.columns.kept, text.columns.change],
        changedLayers(result).map(({ layer, moved, kept_before: before, kept_after: after }) => [
          String(layer),
          format.count(moved),
          format.percent(after, 1),
          format.signed(100 * (after - before), 1),
        ]),
        { "data-testid": "fx-what-if-layers" },
      ),
    );
    this.drawChart();
  }

  drawChart() {
    const { app, run, differences } = this;
    const other = new Set(this.result?.other_top);
    /** @param {PlotPoint} point */
    const position = (point) => Math.round(Number(point.x));
    drawLossChart(app, this.chart, differences, text, {
      hover: (point) => {
        const pos = position(point);
        const more = other.has(pos) ? [text.otherTop] : [];
        return tokenSummary(run, pos, text.changeOf(format.signed(differences[pos] ?? 0, 3)), ...more);
      },
      click: (point) => app.select(selectToken(position(point))),
    });
  }

  /** @param {WhatIfPayload} answer */
  showPrediction({ prediction }) {
    if (prediction === null) {
      this.prediction.replaceChildren(el("p", { class: "fx-help" }, text.choosePrediction));
      return;
    }
    const { token, before, after } = prediction;
    const piece = this.run.pieces[token];
    this.prediction.replaceChildren(
      el("h4", { class: "fx-link-title" }, text.predictionTitle(format.count(token))),
      before === null || after === null
        ? el("p", { class: "fx-help" }, token === 0 ? text.first : text.notRead)
        : el(
            "div",
            { class: "fx-predictions" },
            predictionList(text.before, piece, before),
            predictionList(text.after, piece, after),
          ),
    );
  }
}

/**
 * Layers in which a token changes its group, or the pairs differ.
 * @param {WhatIfResultPayload} result
 */
const changedLayers = ({ layers }) =>
  layers.filter(({ moved, kept_before: before, kept_after: after }) => moved > 0 || before !== after);

/**
 * @param {WhatIfResultPayload} result
 * @param {number} numTokens
 */
function sentences(result, numTokens) {
  const [full, before, after] = [result.nll_full, result.nll_before, result.nll_after].map(Math.exp);
  const { mean, low, high, count } = result.difference;
  /** @param {number} value */
  const nats = (value) => format.signed(value, 4);
  const side = sideOfZero(low, high);
  const decided = side < 0 ? "less" : side > 0 ? "more" : "open";
  const moved = result.layers.filter((layer) => layer.moved > 0);
  const lines = [
    text.loss(
      format.perplexity(before),
      format.perplexity(after),
      format.signedPercent(after / before - 1),
      format.perplexity(full),
    ),
    (low ?? mean) === 0 && (high ?? mean) === 0
      ? text.same
      : text.interval(nats(mean), interval95(low, high, nats)) + text.decided[decided],
    text.predictions(format.count(result.other_top.length), format.count(count)),
    text.groups(format.count(moved.reduce((sum, layer) => sum + layer.moved, 0)), moved.length),
  ];
  if (result.num_tokens < numTokens)
    lines.push(text.partly(format.count(result.num_tokens), format.count(numTokens)));
  return lines;
}
