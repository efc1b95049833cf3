// @ts-check
// The Statistics view: every number of a run with its interval, next to its baselines. Its parts draw themselves.
import { addressedPart } from "../core/address.js";
import { attentionState } from "../core/attention-state.js";
import { el } from "../core/dom.js";
import { alertBox, choiceOf } from "../core/widgets.js";
import { StatAgreement } from "./agreement.js";
import { computingProgress, requestComputed } from "./computed.js";
import { StatDistances } from "./distances.js";
import { StatGroups } from "./groups.js";
import { StatLayers } from "./layers.js";
import { StatOverview } from "./overview.js";
import { StatQuestions } from "./questions.js";
import { statistics as text } from "../strings/statistics.js";
/** @import { ComputingPayload } from "../core/payloads.js" */
/** @import { Answers, Details } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

/** @typedef {keyof typeof text.parts} PartName */
/** @typedef {{ node: HTMLElement, update: () => unknown, selectionChanged?: () => void }} Part */

export class StatisticsView {
  /** @type {PartName} */
  shown;
  /** @type {Run} */
  of;
  /** @type {string} */
  attention;
  /** @type {string} */
  waitingFor;
  /** @type {Run} */
  answersOf;
  /** By question and details. @type {Map<string, Answers[keyof Answers]>} */
  answers;

  /**
   * @param {App} app
   * @param {HTMLElement} panel
   */
  constructor(app, panel) {
    this.app = app;
    this.section = addressedPart(/** @type {PartName[]} */ (Object.keys(text.parts)), "overview");
    this.status = el("div", { class: "fx-status" });
    this.parts = {
      overview: new StatOverview(app, this),
      questions: new StatQuestions(app, this),
      layers: new StatLayers(app, this),
      groups: new StatGroups(app, this),
      distances: new StatDistances(app, this),
      agreement: new StatAgreement(app, this),
    };
    this.choice = choiceOf(text.show, text.parts, this.section, (name) => this.openPart(name));
    panel.append(
      el("div", { class: "fx-toolbar" }, this.choice),
      this.status,
      ...Object.values(this.parts).map((part) => part.node),
    );
  }

  /** @param {PartName} name */
  openPart(name) {
    this.section = name;
    /** @type {HTMLInputElement} */ (this.choice.querySelector(`[value="${name}"]`)).checked = true;
    this.app.tooltip.hide();
    this.app.writeAddress();
    this.update();
  }

  // For the address: nothing for the part that opens by itself.
  get part() {
    return this.section === "overview" ? null : this.section;
  }

  get parameters() {
    /** @param {"layers" | "agreement"} name */
    const parametersOf = (name) => this.parts[name].parameters;
    /** @param {"layers" | "agreement"} name */
    const closed = (name) => Object.fromEntries(Object.keys(parametersOf(name)).map((key) => [key, null]));
    const names = /** @type {const} */ (["layers", "agreement"]);
    return Object.assign({}, ...names.map((name) => (this.section === name ? parametersOf(name) : closed(name))));
  }

  update() {
    this.noticeAttention();
    for (const [name, part] of Object.entries(this.parts)) part.node.hidden = name !== this.section;
    if (this.shown !== this.section || this.of !== this.app.run) this.status.replaceChildren();
    this.shown = this.section;
    this.of = this.app.run;
    this.parts[this.section].update();
  }

  // The sparsity view measures full attention too; then every number here has to be requested again.
  noticeAttention() {
    const { run } = this.app;
    const state = attentionState(run);
    if (this.of === run && state === "done" && this.attention !== state) this.forget();
    this.attention = state;
  }

  selectionChanged() {
    const part = /** @type {Part} */ (this.parts[this.section]);
    part.selectionChanged?.();
  }

  /** @param {PartName} name */
  isOpen(name) {
    return this.app.isOpen("statistics") && this.section === name;
  }

  /**
   * An answer about the open run, kept until the run changes or more of it was measured; null when nobody waits for it
   * any more, or when it failed, which is shown.
   * @template {keyof Answers} K
   * @param {PartName} name
   * @param {K} what
   * @param {Details} [details]
   * @param {boolean} [cache]
   * @returns {Promise<Exclude<Answers[K], ComputingPayload> | null>}
   */
  async answer(name, what, details = {}, cache = true) {
    const { run } = this.app;
    if (this.answersOf !== run) this.forget();
    const key = JSON.stringify([what, details]);
    const known = this.answers.get(key);
    if (known !== undefined) {
      this.stopWaiting(key);
      return /** @type {Exclude<Answers[K], ComputingPayload>} */ (known);
    }
    const waiting = computingProgress(what === "statistics" ? text.waiting : text.waitingPart);
    this.waitingFor = key;
    this.status.replaceChildren(waiting.node);
    const answer = await requestComputed(this.app, what, details, waiting.onProgress);
    if (answer === null || this.waitingFor !== key || !this.isOpen(name)) return null;
    this.status.replaceChildren();
    if (answer.error !== undefined) {
      this.status.replaceChildren(alertBox(answer.error, () => this.update()));
      return null;
    }
    if (cache) this.answers.set(key, answer);
    return answer;
  }

  /**
   * Nobody waits any more for what was asked before, nor for a retry of it.
   * @param {string} [key] of the answer that is shown in its place
   */
  stopWaiting(key = "") {
    this.waitingFor = key;
    this.status.replaceChildren();
  }

  forget() {
    this.answersOf = this.app.run;
    this.answers = new Map();
  }
}
