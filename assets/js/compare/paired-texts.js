// @ts-check
// The text of two runs next to each other, a page at a time, each token in the colour of its group.
import { UNMATCHED } from "./run-pair.js";
import { TokenWalk } from "./token-walk.js";
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupLabel } from "../core/labels.js";
import { selectToken, selectTokens } from "../core/selection.js";
import { tokenSummary } from "../core/token-text.js";
import { runs as text } from "../strings/compare.js";
/** @import { App } from "../shell/app.js" */
/** @import { RunPair } from "./run-pair.js" */

const PAGE = 600; // tokens

export class PairedTexts {
  page = 0;
  /** The runs that are shown. @type {RunPair} */
  pair = /** @type {any} */ (null);

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.sides = { own: body("own"), other: body("other") };
    this.select = buttonOf(text.selectChanged, () => app.toggleSelection(this.changedSelection()), {
      "data-testid": "fx-select-changed",
    });
    this.earlier = buttonOf(text.earlier, () => this.openPage(this.page - 1));
    this.later = buttonOf(text.later, () => this.openPage(this.page + 1));
    this.place = el("span", { class: "fx-muted" });
    this.tools = el(
      "div",
      { class: "fx-toolbar" },
      this.select,
      el("span", { class: "fx-pager" }, this.earlier, this.place, this.later),
    );
    this.node = el(
      "div",
      { class: "fx-pair" },
      Object.entries(this.sides).map(([name, side]) =>
        el("section", {}, el("h5", { class: "fx-side-title" }, text[/** @type {"own" | "other"} */ (name)]), side),
      ),
    );
    this.walks = Object.values(this.sides).map((side) => this.addListeners(side));
  }

  /** @param {HTMLElement} side */
  addListeners(side) {
    side.addEventListener("click", (event) => this.toggleToken(/** @type {HTMLElement} */ (event.target)));
    side.addEventListener("mouseover", (event) => this.showTooltip(/** @type {HTMLElement} */ (event.target)));
    side.addEventListener("mouseleave", () => this.app.tooltip.hide());
    return new TokenWalk(
      side,
      (token) => (token === null ? this.app.tooltip.hide() : this.showTooltip(token)),
      (token) => this.toggleToken(token),
    );
  }

  /** @param {RunPair} pair */
  show(pair) {
    this.pair = pair;
    this.select.disabled = pair.changedPositions().length === 0;
    this.draw();
  }

  /** @param {number} page */
  openPage(page) {
    this.page = page;
    this.draw();
  }

  changedSelection() {
    const layer = this.app.run.layerIds[this.app.layerIndex];
    return selectTokens(this.pair.changedPositions(), "row", text.changedLabel(layer));
  }

  draw() {
    const { pair } = this;
    const { numTokens } = pair.run;
    const first = this.page * PAGE;
    const last = Math.min(numTokens, first + PAGE);
    this.earlier.disabled = first === 0;
    this.later.disabled = last === numTokens;
    this.place.textContent = text.page(format.count(first), format.count(last - 1), format.count(numTokens));
    const positions = range(last - first).map((i) => first + i);
    this.sides.own.replaceChildren(...positions.map((pos) => this.token(pos, pair.ownTop(pos))));
    const other = pair.otherIndex < 0 ? () => UNMATCHED : (/** @type {number} */ pos) => pair.otherTop(pos);
    this.sides.other.replaceChildren(...positions.map((pos) => this.token(pos, other(pos))));
    for (const walk of this.walks) walk.refresh();
    this.mark();
  }

  /**
   * @param {number} pos
   * @param {number} top
   */
  token(pos, top) {
    const { pair } = this;
    const isChanged = pair.otherIndex >= 0 && pair.changed(pos);
    return el(
      "span",
      {
        class: isChanged ? "fx-pair-token fx-changed" : "fx-pair-token",
        role: "option",
        tabindex: "-1",
        "aria-label": text.spoken(
          pair.run.tokenLabel(pos),
          format.count(pos),
          groupLabel(pair.ownTop(pos)),
          pair.otherName(pos),
        ),
        "data-pos": pos,
        "data-shade": top === UNMATCHED ? "none" : `g${top}`,
      },
      pair.run.shown[pos],
    );
  }

  mark() {
    const { selection } = this.app;
    for (const side of Object.values(this.sides)) {
      for (const token of side.querySelectorAll(".fx-pair-token")) {
        const selected = selection !== null && selection.has(Number(token.dataset.pos));
        token.toggleAttribute("data-selected", selected);
        token.setAttribute("aria-selected", String(selected));
      }
    }
  }

  selectionChanged() {
    const { selection } = this.app;
    const pages = selection === null ? [] : [...selection.positions].map((pos) => Math.floor(pos / PAGE));
    if (pages.length > 0 && !pages.includes(this.page)) this.openPage(pages[0]);
    else this.mark();
  }

  /** @param {HTMLElement} token */
  toggleToken(token) {
    const { pos } = token.dataset;
    if (pos !== undefined) this.app.toggleSelection(selectToken(Number(pos)));
  }

  /** @param {HTMLElement} token */
  showTooltip(token) {
    const { pos } = token.dataset;
    if (pos === undefined) return;
    this.app.tooltip.show(this.describe(Number(pos)), token.getBoundingClientRect());
  }

  /** @param {number} pos */
  describe(pos) {
    const { run, answer, differences } = this.pair;
    const [own, other, difference] = [run.losses.focus[pos], answer.losses[pos], differences[pos]];
    const groups = text.token(format.count(pos), groupLabel(this.pair.ownTop(pos)), this.pair.otherName(pos));
    const losses =
      own === null || other === null || difference === null
        ? []
        : [text.losses(format.decimal(own, 2), format.decimal(other, 2), format.signed(difference, 2))];
    return tokenSummary(run, pos, ...[groups, ...losses].map((line) => el("div", {}, line)));
  }
}

/** @param {"own" | "other"} side */
function body(side) {
  return el("div", {
    class: "fx-pair-text",
    role: "listbox",
    "aria-multiselectable": "true",
    "aria-label": text[side],
    "data-side": side,
  });
}
