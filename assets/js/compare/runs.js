// @ts-check
// Two stored runs of the same tokens: the choice of the other run, and the parts of the comparison.
import { drawLossChart } from "./loss-chart.js";
import { runNumbers } from "./numbers.js";
import { PairedTexts } from "./paired-texts.js";
import { agreementSentences, drawAgreement } from "./run-agreement.js";
import { RunPair } from "./run-pair.js";
import { addressOf } from "../core/address.js";
import { el } from "../core/dom.js";
import { dropdown } from "../core/fields.js";
import { format } from "../core/format.js";
import { plotElement } from "../core/plot.js";
import { selectToken } from "../core/selection.js";
import { themeOf } from "../core/theme.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox, progressBox } from "../core/widgets.js";
import { job as jobText, runs as text } from "../strings/compare.js";
/** @import { PartnerPayload } from "../core/payloads.js" */
/** @import { Child } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

export class CompareRuns {
  /** @type {Run} */
  run;
  /** The runs that are compared; null before an answer. @type {RunPair} */
  pair = /** @type {any} */ (null);
  /** The choice by run id. @type {Record<string, string>} */
  partners;
  /** @type {number} */
  shownLayer;
  /** @type {string} */
  theme;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.message = el("div");
    this.choice = el("div");
    this.numbers = el("div", { hidden: true });
    this.requestedRun = addressOf("compare").get("with");
    /** @type {string | null} */
    this.other = null;
    this.words = el("div", { class: "fx-verdict" });
    this.chart = plotElement("fx-layers-agree", text.chartTitle);
    this.loss = plotElement("fx-loss", text.lossTitle);
    this.texts = new PairedTexts(app);
    this.results = el("div", { class: "fx-compare-results", hidden: true });
    this.results.append(
      this.words,
      section(text.chartTitle, text.chartHint, this.chart),
      section(text.textTitle, text.textHint, this.texts.tools, this.texts.node),
      section(text.lossTitle, text.lossHint, this.loss),
    );
    this.node = el(
      "section",
      { class: "fx-compare-part", "data-testid": "fx-compare-runs", hidden: true },
      el("h3", { class: "fx-subtitle" }, text.title),
      el("p", { class: "fx-help" }, text.help),
      this.message,
      this.choice,
      this.numbers,
      this.results,
    );
  }

  update() {
    const { run, root } = this.app;
    if (this.run !== run) {
      this.run = run;
      this.other = this.requestedRun === run.info.run_id ? null : this.requestedRun;
      this.requestedRun = null;
      this.pair = /** @type {any} */ (null);
      this.texts.page = 0;
      this.results.hidden = this.numbers.hidden = true;
      this.findRuns();
      return;
    }
    const theme = themeOf(root);
    if (this.pair !== null && (this.shownLayer !== this.app.layerIndex || this.theme !== theme)) this.show();
  }

  async findRuns() {
    const { run } = this;
    this.choice.replaceChildren();
    this.message.replaceChildren(progressBox(jobText.loading));
    const answer = await this.app.request("compare_partners");
    if (run !== this.app.run) return;
    this.message.replaceChildren();
    if (answer.error !== undefined) this.message.replaceChildren(alertBox(answer.error, () => this.findRuns()));
    else this.showPartners(answer.runs);
  }

  /**
   * The run the address names is shown also when its text is another one; else the newest of the same tokens.
   * @param {PartnerPayload[]} runs
   */
  showPartners(runs) {
    this.partners = Object.fromEntries(
      runs.map((run) => [run.run_id, text.option({ ...run, date: format.date(run.created_at) })]),
    );
    if (this.other !== null && !(this.other in this.partners)) this.loadNumbers(this.other);
    else if (runs.length > 0) this.pick(this.other || runs[0].run_id);
    else this.message.replaceChildren(el("p", { class: "fx-muted", "data-testid": "fx-no-partner" }, text.none));
  }

  /** @param {string} other */
  pick(other) {
    this.drawChoice(this.partners, other);
    this.load(other);
  }

  /**
   * @param {Record<string, string>} options
   * @param {string} chosen
   */
  drawChoice(options, chosen) {
    const select = /** @type {HTMLSelectElement | null} */ (this.choice.querySelector("select"));
    if (select !== null && select.value === chosen) return;
    /** @param {string} other */
    const changed = (other) => (other in this.partners ? this.load(other) : other && this.loadNumbers(other));
    this.choice.replaceChildren(
      ...(Object.keys(options).length > 0 ? [dropdown(text.choose, options, chosen, changed)] : []),
    );
  }

  /** @param {string | null} other */
  showLoading(other) {
    this.other = other;
    this.message.replaceChildren(progressBox(jobText.loading));
    if (this.app.isOpen("compare") && !this.node.hidden) this.app.writeAddress();
  }

  /** @param {string} other */
  async loadNumbers(other) {
    const { run } = this;
    this.showLoading(other);
    const answer = await this.app.request("compare_numbers", { other });
    if (run !== this.app.run || other !== this.other) return;
    this.pair = /** @type {any} */ (null);
    this.results.hidden = this.numbers.hidden = true;
    if (answer.error !== undefined) {
      this.showLoading(null);
      this.message.replaceChildren(alertBox(text.notFound(answer.error)));
      this.drawChoice({ "": text.pick, ...this.partners }, "");
      return;
    }
    this.message.replaceChildren();
    this.drawChoice({ [other]: text.elsewhere(answer.second), ...this.partners }, other);
    this.numbers.replaceChildren(runNumbers(answer, this.app.tooltip, false));
    this.numbers.hidden = false;
  }

  /**
   * @param {string} other
   * @returns {Promise<void>}
   */
  async load(other) {
    const { run } = this;
    this.showLoading(other);
    const [answer, numbers] = await Promise.all([
      this.app.request("compare_beside", { other }),
      this.app.request("compare_numbers", { other }),
    ]);
    if (run !== this.app.run || other !== this.other) return;
    this.message.replaceChildren();
    if (answer.error !== undefined) {
      this.pair = /** @type {any} */ (null);
      this.results.hidden = this.numbers.hidden = true;
      this.message.replaceChildren(alertBox(answer.error, () => this.load(other)));
      return;
    }
    this.pair = new RunPair(this.app, answer);
    this.results.hidden = false;
    this.numbers.hidden = numbers.error !== undefined;
    if (numbers.error === undefined) this.numbers.replaceChildren(runNumbers(numbers, this.app.tooltip, true));
    this.show();
  }

  show() {
    this.shownLayer = this.app.layerIndex;
    this.theme = themeOf(this.app.root);
    this.showSentences();
    this.texts.show(this.pair);
    if (!this.app.isOpen("compare") || this.node.hidden) {
      this.shownLayer = -1; // drawn when the part is opened again
      return;
    }
    drawAgreement(this.app, this.chart, this.pair.answer);
    this.drawLoss();
  }

  showSentences() {
    const hint = hintButton(this.app.tooltip, text.randSubject, text.randHint);
    const lines = agreementSentences(this.pair);
    const first = lines.findIndex((sentence) => sentence.includes(text.rand));
    this.words.replaceChildren(...lines.map((sentence, i) => el("p", {}, sentence, i === first ? hint : null)));
  }

  selectionChanged() {
    if (this.pair === null) return;
    this.texts.selectionChanged();
    if (this.app.isOpen("compare") && !this.node.hidden) this.drawLoss();
  }

  drawLoss() {
    drawLossChart(this.app, this.loss, this.pair.differences, text, {
      hover: (point) => this.texts.describe(point.x),
      click: (point) => this.app.toggleSelection(selectToken(point.x)),
    });
  }
}

/**
 * @param {string} title
 * @param {string} help
 * @param {...Child} children
 */
function section(title, help, ...children) {
  return el("div", {}, el("h4", { class: "fx-subtitle" }, title), el("p", { class: "fx-help" }, help), ...children);
}
