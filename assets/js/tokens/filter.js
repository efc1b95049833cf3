// @ts-check
// The filter of tokens by group, word class and position.
import { range } from "../core/arrays.js";
import { decodeBase64 } from "../core/bytes.js";
import { buttonOf, el, setText } from "../core/dom.js";
import { format } from "../core/format.js";
import { namedLabel } from "../core/group-names.js";
import { selectToken, selectTokens } from "../core/selection.js";
import { hintButton } from "../core/tooltip.js";
import { choiceOf } from "../core/widgets.js";
import { reading as text } from "../strings/tokens.js";
/** @import { App } from "../shell/app.js" */

// Of the codes of `PredictionChangesPayload`.
const [CHANGED, FULL_RIGHT, FOCUS_RIGHT] = [1, 2, 4];

const PREDICTIONS = {
  /** @param {number} code */
  changed: (code) => (code & CHANGED) !== 0,
  /** @param {number} code */
  lost: (code) => (code & (FULL_RIGHT | FOCUS_RIGHT)) === FULL_RIGHT,
  /** @param {number} code */
  won: (code) => (code & (FULL_RIGHT | FOCUS_RIGHT)) === FOCUS_RIGHT,
};

// Filters; `changed` is called when other tokens pass.
export class TokenFilter {
  /** @type {HTMLSelectElement} */
  group;
  /** @type {HTMLSelectElement} */
  kind;
  /** @type {HTMLSelectElement} */
  prediction;
  /** @type {HTMLInputElement} */
  from;
  /** @type {HTMLInputElement} */
  to;
  /** @type {string} */
  mode;
  /** @type {HTMLElement} */
  modes;
  /** @type {HTMLElement} */
  summary;
  /** @type {HTMLParagraphElement} */
  problem;
  /** @type {HTMLDetailsElement} */
  node;

  /**
   * @param {App} app
   * @param {() => unknown} changed
   */
  constructor(app, changed) {
    this.app = app;
    this.changed = changed;
    /** @type {{ names: string[], codes: Uint8Array } | null} */
    this.kinds = null;
    /** What became of the prediction of each token, see `PredictionChangesPayload`. @type {Uint8Array | null} */
    this.changes = null;
    this.build();
  }

  build() {
    const words = text.filter;
    const changed = () => this.apply();
    /** @param {string} label */
    const number = (label) =>
      el("input", {
        type: "number",
        class: "fx-search-field fx-short",
        min: 0,
        step: 1,
        "aria-label": label,
        onchange: changed,
      });
    this.group = el("select", { onchange: changed });
    this.kind = el(
      "select",
      { onchange: () => this.loadKinds() },
      option("", words.anyKind),
      Object.entries(words.kinds).map(([name, label]) => option(name, label)),
    );
    this.prediction = el(
      "select",
      { onchange: () => this.loadKinds() },
      option("", words.anyPrediction),
      Object.entries(words.predictions).map(([name, label]) => option(name, label)),
    );
    [this.from, this.to] = [number(words.from), number(words.to)];
    this.mode = "dim";
    this.modes = choiceOf(words.mode, words.modes, this.mode, (mode) => {
      this.mode = mode;
      this.apply();
    });
    this.summary = el("summary", {}, words.title);
    this.problem = el("p", { class: "fx-help", role: "alert" });
    const row = el(
      "div",
      { class: "fx-filter-row" },
      el("label", { class: "fx-select" }, words.group, this.group),
      el(
        "span",
        { class: "fx-choice" },
        el("label", { class: "fx-select" }, words.kind, this.kind),
        hintButton(this.app.tooltip, words.kindSubject, words.kindHint),
      ),
      el("label", { class: "fx-select" }, words.prediction, this.prediction),
      el("span", { class: "fx-select" }, words.from, this.from, words.to, this.to),
      this.modes,
      buttonOf(words.select, () => this.selectAll()),
      buttonOf(words.clear, () => this.clear()),
      this.problem,
    );
    this.node = el("details", { class: "fx-details fx-filter", "data-testid": "fx-filter" }, this.summary, row);
  }

  reset() {
    this.kinds = null;
    this.changes = null;
    this.problem.textContent = "";
    this.group.replaceChildren(
      option("", text.filter.anyGroup),
      ...range(this.app.run.numGroups).map((group) => option(String(group), "")),
    );
    this.nameGroups();
    for (const input of [this.kind, this.prediction, this.from, this.to]) input.value = "";
    this.count();
  }

  /** The groups to choose from, by their names in the open layer. */
  nameGroups() {
    const { run, layerIndex } = this.app;
    [...this.group.children].slice(1).forEach((one, group) => setText(one, namedLabel(run, layerIndex, group)));
  }

  /**
   * As the address has it; what this run does not have is left out.
   * @param {URLSearchParams} address
   */
  restore(address) {
    for (const [name, input] of Object.entries(this.inputs())) {
      input.value = address.get(name) || "";
      if (input instanceof HTMLSelectElement && input.selectedIndex < 0) input.value = "";
    }
    if (!this.active) return;
    this.node.open = true; // who follows a link did not set the filter, and must see it
    this.mode = address.get("others") === "hide" ? "hide" : "dim";
    /** @type {HTMLInputElement} */ (this.modes.querySelector(`[value=${this.mode}]`)).checked = true;
    this.loadKinds();
  }

  get parameters() {
    const values = Object.entries(this.inputs()).map(([name, input]) => [name, input.value || null]);
    return { ...Object.fromEntries(values), others: this.active && this.mode === "hide" ? "hide" : null };
  }

  inputs() {
    return { group: this.group, kind: this.kind, prediction: this.prediction, from: this.from, to: this.to };
  }

  clear() {
    this.group.value = "";
    for (const input of [this.kind, this.prediction, this.from, this.to]) input.value = "";
    this.apply();
  }

  get active() {
    return Object.values(this.inputs()).some((input) => input.value !== "");
  }

  // Kinds of words and changed predictions are requested once, when somebody first filters by them.
  async loadKinds() {
    const { run } = this.app;
    this.problem.textContent = "";
    let asked = this.kind;
    try {
      if (this.kind.value !== "" && this.kinds === null) {
        const answer = await run.requestOnce("word_classes");
        if (this.app.run !== run) return;
        this.kinds = { names: answer.names, codes: decodeBase64(answer.classes) };
      }
      if (this.prediction.value !== "" && this.changes === null) {
        asked = this.prediction;
        const answer = await run.requestOnce("prediction_changes");
        if (this.app.run !== run) return;
        if (!answer.stored) throw new Error(text.filter.noPredictions);
        this.changes = decodeBase64(answer.codes);
      }
      this.apply();
    } catch (error) {
      if (this.app.run !== run) return;
      asked.value = "";
      this.problem.textContent = error.message;
      this.apply();
    }
  }

  apply() {
    this.count();
    this.changed();
  }

  count() {
    const { run } = this.app;
    this.summary.textContent = this.active
      ? text.filter.active(format.count(this.positions().length), format.count(run.numTokens))
      : text.filter.title;
  }

  /**
   * Whether the token at a position passes in this layer.
   * @returns {(pos: number) => boolean}
   */
  test() {
    const { run, layerIndex } = this.app;
    /** @type {((pos: number) => boolean)[]} */
    const tests = [];
    if (this.group.value !== "") tests.push((pos) => run.top(layerIndex, pos) === Number(this.group.value));
    if (this.kind.value !== "" && this.kinds) {
      const { names, codes } = this.kinds;
      const code = names.indexOf(this.kind.value);
      tests.push((pos) => codes[pos] === code);
    }
    if (this.prediction.value !== "" && this.changes) {
      const { changes } = this;
      const passes = PREDICTIONS[/** @type {keyof typeof PREDICTIONS} */ (this.prediction.value)];
      tests.push((pos) => passes(changes[pos]));
    }
    if (this.from.value !== "") tests.push((pos) => pos >= Number(this.from.value));
    if (this.to.value !== "") tests.push((pos) => pos <= Number(this.to.value));
    return (pos) => tests.every((passes) => passes(pos));
  }

  positions() {
    const passes = this.test();
    const positions = [];
    for (let pos = 0; pos < this.app.run.numTokens; pos += 1) if (passes(pos)) positions.push(pos);
    return positions;
  }

  selectAll() {
    const positions = this.positions();
    const one = positions.length === 1;
    this.app.select(one ? selectToken(positions[0]) : selectTokens(positions, "search", text.filter.selected));
  }
}

/**
 * @param {string} value
 * @param {string} label
 */
const option = (value, label) => el("option", { value }, label);
