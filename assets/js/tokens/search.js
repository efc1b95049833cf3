// @ts-check
// The search box: finds text, counts and steps through the hits that the filter shows, and selects them.
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { selectTokens } from "../core/selection.js";
import { reading as text } from "../strings/tokens.js";
import { matches, plainMatches, tokenHits } from "./matches.js";
/** @import { App } from "../shell/app.js" */
/** @import { Hit } from "./matches.js" */

/**
 * `changed`: there are other hits; `reached`: the token of a hit to show; `top`: the first token on the screen;
 * `shows`: whether a token is among those that the filter does not hide.
 * @typedef {object} SearchHandlers
 * @property {() => unknown} changed
 * @property {(pos: number) => unknown} reached
 * @property {() => number} top
 * @property {(pos: number) => boolean} shows
 */

const PAUSE = 120; // ms without typing before a search begins

export class Search {
  /** @type {HTMLInputElement} */
  field;
  /** @type {HTMLInputElement} */
  regex;
  /** @type {HTMLSpanElement} */
  status;
  /** @type {HTMLButtonElement[]} */
  buttons;
  /** @type {HTMLDivElement} */
  node;
  requestId = 0;
  /** @type {string | null} */
  whole;
  /** @type {Hit[]} */
  found;
  /** Those found of which the filter shows a token. @type {Hit[]} */
  hits;
  /** @type {number} */
  at;
  /** @type {Set<number>} */
  hitTokens;
  /** @type {number} */
  timer;
  /** @type {Uint32Array<ArrayBuffer>} */
  starts;

  /**
   * @param {App} app
   * @param {SearchHandlers} handlers
   */
  constructor(app, handlers) {
    this.app = app;
    this.handlers = handlers;
    this.build();
    this.forget(null);
  }

  build() {
    const words = text.search;
    this.field = el("input", {
      type: "search",
      class: "fx-search-field",
      placeholder: words.placeholder,
      "aria-label": words.label,
      "data-testid": "fx-search",
      oninput: () => this.later(),
      onkeydown: (event) => this.key(event),
    });
    this.regex = el("input", { type: "checkbox", onchange: () => this.run() });
    this.status = el("span", { class: "fx-search-status", role: "status" });
    /** @param {string} symbol @param {string} label @param {number} by */
    const step = (symbol, label, by) =>
      buttonOf(symbol, () => this.step(by), { class: "fx-step", "aria-label": label, disabled: true });
    this.buttons = [
      step("‹", words.previous, -1),
      step("›", words.next, 1),
      buttonOf(words.selectAll, () => this.selectAll(), { disabled: true }),
    ];
    this.node = el(
      "div",
      { class: "fx-search", role: "search" },
      this.field,
      el(
        "label",
        { class: "fx-toggle", title: words.regex },
        this.regex,
        el("span", { "aria-hidden": "true" }, words.regexShort),
        el("span", { class: "fx-hidden-label" }, words.regex),
      ),
      this.status,
      this.buttons,
    );
  }

  // For another run: nothing is found yet, and an answer on its way counts no more.
  reset() {
    this.requestId += 1;
    this.whole = null;
    this.field.value = "";
    this.forget(null);
  }

  /**
   * As the address has it.
   * @param {URLSearchParams} address
   */
  restore(address) {
    this.field.value = address.get("find") || "";
    this.regex.checked = address.has("regex");
    if (this.field.value) this.run();
  }

  get parameters() {
    const find = this.field.value || null;
    return { find, regex: find !== null && this.regex.checked ? "1" : null };
  }

  /** @param {string | null} problem */
  forget(problem) {
    this.found = [];
    this.hits = [];
    this.at = -1;
    this.hitTokens = new Set();
    this.enableButtons();
    this.node.classList.toggle("fx-bad", problem !== null);
    this.status.textContent = problem || (this.field.value ? text.search.none : "");
  }

  enableButtons() {
    this.buttons.forEach((button) => {
      button.disabled = this.hits.length === 0;
    });
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), PAUSE);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape" && this.field.value) {
      event.stopPropagation();
      this.field.value = "";
      this.run();
    }
  }

  // Offsets of the pieces in the text they add up to.
  prepare() {
    const { run } = this.app;
    const parts = Array.from(run.pieces, (_, pos) => run.text(pos, pos + 1));
    this.whole = parts.join("");
    this.starts = new Uint32Array(parts.length);
    for (let pos = 1; pos < parts.length; pos += 1) this.starts[pos] = this.starts[pos - 1] + parts[pos - 1].length;
  }

  async run() {
    const source = this.field.value;
    const requestId = (this.requestId += 1);
    if (source === "") return this.showHits([]);
    if (!this.whole) this.prepare();
    try {
      const whole = this.whole ?? "";
      const bounds = this.regex.checked ? await matches(source, "gimu", whole) : plainMatches(source, whole);
      if (requestId === this.requestId) this.showHits(tokenHits(bounds, this.starts));
    } catch (error) {
      if (requestId === this.requestId)
        this.showHits([], error instanceof SyntaxError ? text.search.bad : text.search.slow);
    }
    return undefined;
  }

  /**
   * @param {Hit[]} hits
   * @param {string | null} [problem]
   */
  showHits(hits, problem = null) {
    this.forget(problem);
    this.found = hits;
    this.hitTokens = tokensOf(hits);
    this.filtered();
    this.handlers.changed();
    this.step(1);
  }

  /** The filter shows other tokens: the current hit stays where it is still shown. */
  filtered() {
    const current = this.currentHit();
    this.hits = this.found.filter((hit) => this.shownToken(hit) !== undefined);
    this.at = current === null ? -1 : this.hits.indexOf(current);
    this.enableButtons();
    if (this.found.length > 0) this.status.textContent = this.statusWords();
  }

  /**
   * The first token of a hit that is not hidden.
   * @param {Hit} hit
   */
  shownToken([first, last]) {
    for (let pos = first; pos <= last; pos += 1) if (this.handlers.shows(pos)) return pos;
    return undefined;
  }

  statusWords() {
    const shown = format.count(this.hits.length);
    const hidden = this.found.length - this.hits.length;
    const words = this.at < 0 ? text.search.hits(shown) : text.search.status(format.count(this.at + 1), shown);
    return hidden === 0 ? words : text.search.hidden(words, format.count(hidden));
  }

  /** @param {number} by */
  step(by) {
    if (this.hits.length === 0) return;
    if (this.at < 0) this.at = by > 0 ? this.nextAfter(this.handlers.top()) : this.hits.length - 1;
    else this.at = (this.at + by + this.hits.length) % this.hits.length;
    this.status.textContent = this.statusWords();
    this.handlers.reached(/** @type {number} */ (this.shownToken(this.hits[this.at])));
  }

  /**
   * The search begins where the reader is.
   * @param {number} pos
   */
  nextAfter(pos) {
    const next = this.hits.findIndex(([first]) => first >= pos);
    return next < 0 ? 0 : next;
  }

  currentHit() {
    return this.at < 0 ? null : this.hits[this.at];
  }

  selectAll() {
    const label = text.search.selected(this.field.value, format.count(this.hits.length));
    this.app.select(selectTokens(tokensOf(this.hits), "search", label));
  }
}

/** @param {Hit[]} hits */
const tokensOf = (hits) => new Set(hits.flatMap(([first, last]) => range(last - first + 1).map((i) => first + i)));
