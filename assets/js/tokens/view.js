// @ts-check
// The Tokens view: every token a coloured span; search, filter, legend, and the panel of one token.
import { addressOf } from "../core/address.js";
import { el } from "../core/dom.js";
import { groupLabel } from "../core/labels.js";
import { selectGroup } from "../core/selection.js";
import { choiceOf } from "../core/widgets.js";
import { reading, tokens as text } from "../strings/tokens.js";
import { looksLikeCode } from "./code.js";
import { TokenColours } from "./colouring.js";
import { spokenToken, tokenDetails } from "./details.js";
import { TokenFilter } from "./filter.js";
import { TokenInput } from "./input.js";
import { Legend } from "./legend.js";
import { Lines } from "./lines.js";
import { Links } from "./links.js";
import { TokenPanel } from "./panel.js";
import { Search } from "./search.js";
import { Typing } from "./typing.js";
/** @import { TokenSpan, UiEvent } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

const CODE_TOKENS = 4000; // that are looked at to tell code from prose

export class TokensView {
  /** @type {Lines} */
  lines;
  /** @type {HTMLDivElement} */
  text;
  /** @type {TokenInput} */
  input;
  /** @type {Run} */
  run;
  /** Whether a token passes the filter. @type {(pos: number) => boolean} */
  passes;

  /**
   * @param {App} app
   * @param {HTMLElement} panel
   */
  constructor(app, panel) {
    this.app = app;
    /** The address of the first run. @type {URLSearchParams | null} */
    this.address = addressOf("tokens");
    this.colours = new TokenColours(app.tooltip, addressOf("tokens").get("colour"));
    this.current = 0;
    /** @type {Links | null} */
    this.links = null;
    /** Why a layer did not come. @type {{ run: Run, layerIndex: number, message: string } | null} */
    this.problem = null;
    this.search = new Search(app, {
      changed: () => {
        this.repaint();
        app.writeAddress();
      },
      reached: (pos) => this.showHit(pos),
      top: () => this.topToken(),
      shows: (pos) => this.lines.has(pos),
    });
    this.filter = new TokenFilter(app, () => {
      this.applyFilter();
      app.writeAddress();
    });
    this.legend = new Legend(app.tooltip, (group) => this.toggleGroup(group));
    this.detail = new TokenPanel(app, () => this.closeDetail());
    this.typing = new Typing(app);
    /** @param {UiEvent<Event>} event */
    const changed = (event) => this.lines.setFixedWidth(event.target.checked);
    this.fixedWidth = el("input", { type: "checkbox", onchange: changed, "data-testid": "fx-fixed-width" });
    this.build(panel);
  }

  /** @param {HTMLElement} panel */
  build(panel) {
    const attributes = {
      role: "listbox",
      tabindex: "0",
      "aria-multiselectable": "true",
      "aria-label": text.textLabel,
      "data-testid": "fx-tokens",
    };
    this.lines = new Lines(attributes, (span, pos) => this.paint(span, pos));
    this.text = this.lines.text;
    this.lines.changed = () => this.pointAtCurrent();
    this.addListeners();
    panel.append(
      el(
        "div",
        { class: "fx-toolbar" },
        choiceOf(text.colourBy, reading.colourings, this.colours.name, (value) => this.setColouring(value)),
        this.labelsToggle(),
        el("label", { class: "fx-toggle" }, this.fixedWidth, text.fixedWidth),
        this.colours.key,
      ),
      el(
        "div",
        { class: "fx-split" },
        el(
          "div",
          { class: "fx-reading" },
          el("div", { class: "fx-find" }, this.search.node, this.filter.node),
          this.lines.node,
          el("p", { class: "fx-help" }, reading.help),
          this.typing.node,
        ),
        el("div", { class: "fx-side" }, this.detail.node, this.legend.node),
      ),
    );
  }

  labelsToggle() {
    /** @param {UiEvent<Event>} event */
    const changed = (event) => this.lines.setLabels(event.target.checked);
    return el("label", { class: "fx-toggle" }, el("input", { type: "checkbox", onchange: changed }), text.showLabels);
  }

  addListeners() {
    /** @param {Event} event */
    const details = (event) => {
      const span = this.spanOf(event);
      if (span) this.describe(span);
    };
    this.text.addEventListener("mouseover", details);
    this.text.addEventListener("mouseleave", () => this.app.tooltip.hide());
    this.text.addEventListener("focusout", () => this.app.tooltip.hide());
    this.input = new TokenInput(this);
    this.lines.node.addEventListener("scroll", () => this.app.tooltip.hide(), { passive: true });
  }

  /**
   * @param {Event} event
   * @returns {TokenSpan | null}
   */
  spanOf(event) {
    const node = /** @type {TokenSpan | null} */ (/** @type {Element} */ (event.target).closest(".fx-token, .fx-tail"));
    return node && node.fxPos !== undefined ? node : null;
  }

  // A new run starts at its selection or its beginning; a new layer only recolours.
  update() {
    const { run, layerIndex } = this.app;
    const { problem } = this;
    if (problem && (problem.run !== run || problem.layerIndex !== layerIndex || run.hasLayer(layerIndex)))
      this.problem = null;
    if (this.run !== this.app.run) this.openRun();
    else if (this.filter.active) this.applyFilter();
    else if (this.lines.lines.length === 0) this.lines.lay(true);
    this.filter.nameGroups();
    this.selectionChanged();
    this.typing.update();
  }

  openRun() {
    const { run, selection } = this.app;
    this.run = run;
    this.current = 0;
    this.links = null;
    this.input.reset();
    this.search.reset();
    this.filter.reset();
    this.passes = () => true;
    this.colours.prepare(this.run, this.app.layerIndex);
    this.fixedWidth.checked = looksLikeCode(run.pieces.slice(0, CODE_TOKENS).join(""));
    this.lines.setFixedWidth(this.fixedWidth.checked);
    this.lines.numGroups = run.numGroups;
    this.lines.setText(run.shown);
    this.restore();
    if (selection) this.moveTo(selection.positions[0], true);
  }

  // The address speaks of the first run it opens, not of those a person opens later.
  restore() {
    const { address } = this;
    this.address = null;
    if (address === null) return;
    this.filter.restore(address);
    this.search.restore(address);
  }

  get parameters() {
    return { colour: this.colours.parameter, ...this.search.parameters, ...this.filter.parameters };
  }

  selectionChanged() {
    const { app } = this;
    const { selection, layerIndex } = app;
    const pos = selection !== null && selection.size === 1 ? selection.positions[0] : null;
    this.links = pos !== null && this.run.hasLayer(layerIndex) ? new Links(this.run, layerIndex, pos, app.part) : null;
    if (pos === null) this.hideDetail();
    else this.detail.show(pos, this.links, this.problem?.message);
    this.repaint();
    this.legend.update(this.run, layerIndex, selection);
  }

  closeDetail() {
    this.app.select(null);
    this.text.focus({ preventScroll: true });
  }

  /** The keyboard must not be left on what is gone. */
  hideDetail() {
    const focused = this.detail.node.contains(document.activeElement);
    this.detail.hide();
    if (focused) this.text.focus({ preventScroll: true });
  }

  /** @param {string} message */
  layerFailed(message) {
    const { run, layerIndex } = this.app;
    this.problem = { run, layerIndex, message };
    if (this.app.isOpen("tokens")) this.selectionChanged();
  }

  repaint() {
    if (!this.run) return;
    this.colours.prepare(this.run, this.app.layerIndex);
    this.lines.repaint();
    this.pointAtCurrent();
    this.colours.updateKey(this.run);
  }

  // A screen reader must not be sent to a token that is scrolled away and so is not on the page.
  pointAtCurrent() {
    if (this.lines.spanOf(this.current)) this.text.setAttribute("aria-activedescendant", `fx-token-${this.current}`);
    else this.text.removeAttribute("aria-activedescendant");
  }

  /**
   * The looks of one token; called for those on screen only.
   * @param {TokenSpan} span
   * @param {number} pos
   */
  paint(span, pos) {
    const { layerIndex, selection } = this.app;
    const group = this.run.top(layerIndex, pos);
    const cause = this.links === null ? null : this.links.cause(pos);
    const itself = this.links !== null && pos === this.links.pos;
    const selected = selection !== null && selection.has(pos);
    const data = span.dataset;
    data.group = String(group);
    data.label = groupLabel(group);
    data.shade = this.colours.shade(pos, group);
    if (cause === null || itself) delete data.link;
    else [data.link, data.way] = [cause, pos < /** @type {Links} */ (this.links).pos ? "back" : "forward"];
    const { classList } = span;
    classList.toggle("fx-dimmed", (selection !== null && !selected && cause === null) || !this.passes(pos));
    classList.toggle("fx-chosen", itself);
    classList.toggle("fx-hit", this.search.hitTokens.has(pos));
    const hit = this.search.currentHit();
    classList.toggle("fx-hit-now", hit !== null && pos >= hit[0] && pos <= hit[1]);
    if (span.role === "option") span.setAttribute("aria-selected", String(selected));
    this.markCurrent(span, pos);
  }

  /**
   * The token that the keyboard is on has its group in its name; in every name a reader of the text would hear it.
   * @param {TokenSpan} span
   * @param {number} pos
   */
  markCurrent(span, pos) {
    const isCurrent = pos === this.current;
    const wasCurrent = span.classList.contains("fx-current");
    span.classList.toggle("fx-current", isCurrent);
    if (span.role !== "option" || (!isCurrent && !wasCurrent)) return;
    const name = isCurrent ? spokenToken(this.run, this.app.layerIndex, pos) : this.lines.nameOf(pos);
    if (name === null) span.removeAttribute("aria-label");
    else span.setAttribute("aria-label", name);
  }

  /** @param {string} value */
  setColouring(value) {
    this.colours.name = value;
    this.repaint();
    this.app.writeAddress();
  }

  /** @param {number} group */
  toggleGroup(group) {
    this.app.toggleSelection(selectGroup(this.run, this.app.layerIndex, group));
  }

  applyFilter() {
    if (!this.run) return;
    this.passes = this.filter.active ? this.filter.test() : () => true;
    const hides = this.filter.active && this.filter.mode === "hide";
    this.filter.count();
    this.colours.prepare(this.run, this.app.layerIndex);
    if (hides || !this.lines.all)
      this.lines.setText(this.run.shown, hides ? Uint32Array.from(this.filter.positions()) : null);
    this.current = this.lines.nearest(this.current);
    this.search.filtered();
    this.repaint();
  }

  topToken() {
    const anchor = this.lines.anchor();
    return anchor === null ? 0 : anchor.pos;
  }

  /** @param {number} pos */
  showHit(pos) {
    this.moveTo(pos, !this.isVisible(pos));
    this.repaint();
  }

  /** @param {number} pos */
  isVisible(pos) {
    const span = this.lines.spanOf(pos);
    if (span === null) return false;
    const [inner, outer] = [span.getBoundingClientRect(), this.lines.node.getBoundingClientRect()];
    return inner.top >= outer.top && inner.bottom <= outer.bottom;
  }

  /**
   * Makes a token the current one, the one the keyboard acts on, and brings it into view.
   * @param {number} pos
   * @param {boolean} [centre]
   * @returns {TokenSpan | null}
   */
  moveTo(pos, centre = false) {
    const before = this.current;
    this.current = pos;
    const span = this.lines.reveal(pos, centre);
    for (const other of [before, pos]) {
      const drawn = this.lines.spanOf(other);
      if (drawn) this.markCurrent(drawn, other);
    }
    this.pointAtCurrent();
    return span;
  }

  /** @param {number} pos */
  goTo(pos) {
    if (!this.lines.has(pos)) this.filter.clear();
    const span = this.moveTo(pos, true);
    this.lines.node.scrollIntoView({ block: "nearest" });
    this.text.focus({ preventScroll: true });
    if (span) this.describe(span);
  }

  /** @param {TokenSpan} span */
  describe(span) {
    if (this.input.dragging) return;
    const rect = span.getClientRects()[0] || span.getBoundingClientRect();
    const { layerIndex, part } = this.app;
    this.app.tooltip.show(tokenDetails(this.run, layerIndex, span.fxPos, part), rect);
  }
}
