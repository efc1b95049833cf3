// @ts-check
// The Groups view: cards of the open layer's groups, all groups ranked, and groups across layers.
import { addressedPart } from "../core/address.js";
import { forgetAnswer, requestOnce } from "../core/answers.js";
import { attentionState, setAttentionState } from "../core/attention-state.js";
import { el } from "../core/dom.js";
import { alertBox, choiceOf, progressBox } from "../core/widgets.js";
import { LayerAgreement } from "./agreement.js";
import { GroupCards } from "./cards.js";
import { GroupFinder } from "./finder.js";
import { GroupFlow } from "./flow.js";
import { groups as text } from "../strings/groups.js";
/** @import { GroupsPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { App } from "../shell/app.js" */

const WATCH_MS = 2000;

/** @typedef {keyof typeof text.sections} Section */
/** A piece of a section. @typedef {{ update: (data: GroupsPayload) => void, selectionChanged?: () => void }} Part */

/** @param {App} app */
async function requestGroups(app) {
  const { run } = app;
  const answer = await requestOnce(app, "groups");
  if (app.run !== run || answer.error !== undefined || !outdated(run, answer)) return answer;
  forgetAnswer(run, "groups");
  return requestOnce(app, "groups");
}

/**
 * @param {Run} run
 * @param {GroupsPayload} answer
 */
const outdated = (run, answer) => answer.attention_tokens === null && attentionState(run) === "done";

export class GroupsView {
  /** @type {Run | null} */
  run;
  /** @type {GroupsPayload} */
  data;
  /** @type {boolean} */
  watching;

  /**
   * @param {App} app
   * @param {HTMLElement} panel
   */
  constructor(app, panel) {
    this.app = app;
    this.section = addressedPart(/** @type {Section[]} */ (Object.keys(text.sections)), "cards");
    this.status = el("div", { class: "fx-status" });
    this.cards = new GroupCards(app);
    this.finder = new GroupFinder(app);
    this.flow = new GroupFlow(app);
    this.agreement = new LayerAgreement(app, (first, second) => this.compare(first, second));
    /** @type {Record<Section, Part[]>} */
    this.parts = { cards: [this.cards], finder: [this.finder], layers: [this.flow, this.agreement] };
    this.places = {
      cards: this.cards.node,
      finder: this.finder.node,
      layers: el("div", { class: "fx-across" }, this.flow.node, this.agreement.node),
    };
    /** @param {Section} section */
    const changed = (section) => {
      this.section = section;
      app.writeAddress();
      this.update();
    };
    panel.append(
      el("div", { class: "fx-toolbar" }, choiceOf(text.show, text.sections, this.section, changed)),
      this.status,
      ...Object.values(this.places),
    );
  }

  // For the address: nothing for the part that opens by itself.
  get part() {
    return this.section === "cards" ? null : this.section;
  }

  get parameters() {
    const finderParameters = this.finder.parameters;
    return this.section === "finder"
      ? finderParameters
      : Object.fromEntries(Object.keys(finderParameters).map((name) => [name, null]));
  }

  async update() {
    const { app } = this;
    const { run } = app;
    if (this.run === run && !outdated(run, this.data)) {
      this.show();
      this.watchAttention();
      return;
    }
    this.run = null;
    for (const place of Object.values(this.places)) place.hidden = true;
    this.status.replaceChildren(progressBox(text.waiting));
    const answer = await requestGroups(app);
    // A closed view draws nothing; it asks again when it opens.
    if (app.run !== run || !app.isOpen("groups")) return;
    if (answer.error !== undefined) {
      this.status.replaceChildren(alertBox(answer.error, () => this.update()));
      return;
    }
    this.run = run;
    this.data = answer;
    this.show();
    this.watchAttention();
  }

  // A measurement begun in Sparsity may end while this view is open.
  async watchAttention() {
    const { app, run } = this;
    if (this.watching || attentionState(/** @type {Run} */ (run)) !== "running") return;
    this.watching = true;
    const answer = await app.request("attention");
    this.watching = false;
    if (answer.error === undefined) setAttentionState(/** @type {Run} */ (run), answer.state);
    if (this.run !== run || app.run !== run || !app.isOpen("groups")) return;
    if (outdated(run, this.data)) this.update();
    else setTimeout(() => app.isOpen("groups") && this.run === app.run && this.watchAttention(), WATCH_MS);
  }

  show() {
    this.status.replaceChildren();
    for (const [name, place] of Object.entries(this.places)) place.hidden = name !== this.section;
    for (const part of this.parts[this.section]) part.update(this.data);
  }

  selectionChanged() {
    if (this.run !== this.app.run) return;
    for (const part of this.parts[this.section]) part.selectionChanged?.();
  }

  /**
   * @param {number} first
   * @param {number} second
   */
  compare(first, second) {
    this.flow.compare(first, second);
    if (first === this.app.layerIndex) this.show();
    else this.app.setLayer(first);
    this.flow.node.scrollIntoView({
      block: "start",
      behavior: window.matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
    });
  }
}
