// @ts-check
// The text as lines of equal height, of which only those near the visible part exist in the page.
import { lowerBound } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupLabel } from "../core/labels.js";
import { reading as readingText } from "../strings/tokens.js";
import { Measure, breakLines } from "./line-breaks.js";
/** @import { Attributes, TokenSpan } from "../core/types.js" */
/** @import { Line } from "./line-breaks.js" */

const OVERSCAN = 24; // lines drawn beyond either edge

const WHOLE = 600; // tokens; a text up to this is drawn whole

const HEIGHT = { plain: 31, labels: 36 };

const LABEL_WIDTH = 10;

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;

const STRONG = /[\p{L}]/u;

export class Lines {
  /** @type {string[]} */
  pieces;
  /** @type {Uint32Array<ArrayBufferLike>} */
  shown;
  /** @type {boolean} */
  all;
  /** @type {((view: Lines, index: number) => "ltr" | "rtl" | null) | null} */
  direction;
  /** Of the run, whose longest label has room beside every token. */
  numGroups = 1;
  /** @type {Measure} */
  measure;
  /** @type {number} */
  laidWidth;
  /** @type {number[] | null} */
  range;

  /**
   * `paint(span, pos)` gives a token its looks; `attributes` go onto the element that holds the text.
   * @param {Attributes} attributes
   * @param {(span: TokenSpan, pos: number) => void} paint
   */
  constructor(attributes, paint) {
    this.changed = () => {}; // called when other lines were drawn
    this.paint = paint;
    this.window = el("div", { class: "fx-window", role: "presentation" });
    this.text = el("div", { class: "fx-text", ...attributes }, this.window);
    this.empty = el(
      "div",
      { class: "fx-empty fx-none", hidden: true },
      el("p", {}, readingText.none),
      el("p", {}, readingText.noneHelp),
    );
    this.node = el("div", { class: "fx-scroller", tabindex: "-1" }, this.text, this.empty);
    this.labels = false;
    /** @type {Map<number, HTMLElement & { children: HTMLCollectionOf<TokenSpan> }>} */
    this.drawnLines = new Map();
    /** @type {Line[]} */
    this.lines = [];
    this.node.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.width() !== this.laidWidth && this.lay()).observe(this.node);
  }

  width() {
    return this.text.clientWidth;
  }

  get lineHeight() {
    return this.labels ? HEIGHT.labels : HEIGHT.plain;
  }

  /**
   * `shown` is null for the whole text, else the positions to show, in order.
   * @param {string[]} pieces
   * @param {Uint32Array | null} [shown]
   */
  setText(pieces, shown = null) {
    const fresh = this.pieces !== pieces;
    this.pieces = pieces;
    this.shown = shown || Uint32Array.from(pieces.keys());
    this.all = shown === null;
    if (fresh) this.direction = pieces.some((piece) => RIGHT_TO_LEFT.test(piece)) ? paragraphDirection : null;
    this.lay(fresh);
  }

  get labelWidth() {
    return this.labels ? LABEL_WIDTH * groupLabel(this.numGroups - 1).length : 0;
  }

  /** @param {boolean} labels */
  setLabels(labels) {
    this.labels = labels;
    this.text.classList.toggle("fx-with-labels", labels);
    this.lay();
  }

  /** @param {boolean} fixed letters of one width */
  setFixedWidth(fixed) {
    if (this.text.classList.contains("fx-fixed-width") === fixed) return;
    this.text.classList.toggle("fx-fixed-width", fixed);
    this.measure = /** @type {any} */ (null); // widths are others
    this.lay();
  }

  /**
   * Breaks the lines anew; what was at the top of the view stays there.
   * @param {boolean} [fresh]
   */
  lay(fresh = false) {
    if (!this.pieces || this.width() === 0) return;
    this.measure = this.measure || new Measure(this.text);
    const anchor = fresh ? null : this.anchor();
    this.laidWidth = this.width();
    this.lines = breakLines(this.pieces, this.shown, this.measure, this.laidWidth, this.labelWidth);
    this.text.style.height = `${this.lines.length * this.lineHeight}px`;
    this.text.style.setProperty("--fx-line", `${this.lineHeight}px`);
    this.empty.hidden = this.shown.length > 0;
    this.drawnLines.clear();
    if (fresh) this.node.scrollTop = 0;
    else if (anchor !== null && this.shown.length > 0)
      this.node.scrollTop = this.lineOf(anchor.pos) * this.lineHeight + anchor.offset;
    this.range = null;
    this.draw();
  }

  anchor() {
    const first = Math.floor(this.node.scrollTop / this.lineHeight);
    const line = this.lines[first];
    return line && line.pos >= 0 ? { pos: line.pos, offset: this.node.scrollTop - first * this.lineHeight } : null;
  }

  draw() {
    const { scrollTop, clientHeight } = this.node;
    const inView = [Math.floor(scrollTop / this.lineHeight), Math.ceil((scrollTop + clientHeight) / this.lineHeight)];
    const whole = this.shown.length <= WHOLE;
    const first = whole ? 0 : Math.max(0, inView[0] - OVERSCAN);
    const end = whole ? this.lines.length : Math.min(this.lines.length, inView[1] + OVERSCAN);
    if (
      this.range &&
      this.range[0] <= Math.max(0, inView[0] - 4) &&
      this.range[1] >= Math.min(this.lines.length, inView[1] + 4)
    )
      return;
    this.range = [first, end];
    const keptLines = new Map();
    for (let i = first; i < end; i += 1) keptLines.set(i, this.drawnLines.get(i) || this.buildLine(i));
    this.drawnLines = keptLines;
    this.window.style.transform = `translateY(${first * this.lineHeight}px)`;
    this.window.replaceChildren(...keptLines.values());
    this.changed();
  }

  /** @param {number} index */
  buildLine(index) {
    const line = this.lines[index];
    const node = el("div", {
      class: "fx-line",
      role: "presentation",
      dir: this.direction && this.direction(this, index),
    });
    if (line.tail) node.append(this.tail(line));
    for (let i = line.first; i < line.end; i += 1) {
      const pos = this.shown[i];
      if (i > 0 && pos !== this.shown[i - 1] + 1) node.append(gapMark(pos - this.shown[i - 1] - 1));
      node.append(this.span(pos, line.soft && i === line.first));
    }
    return node;
  }

  /**
   * The indentation after a line end belongs to the token before it.
   * @param {Line} line
   */
  tail(line) {
    const span = el("span", { class: "fx-tail", "aria-hidden": "true" }, line.tail);
    const node = Object.assign(span, { fxPos: line.tailPos });
    this.paint(node, line.tailPos);
    return node;
  }

  /**
   * What a token of spaces and line ends is called; null where its text says it.
   * @param {number} pos
   */
  nameOf(pos) {
    const { head, ends } = this.measure.of(this.pieces[pos]);
    if (head.trim()) return null;
    return ends ? readingText.lineBreak : readingText.space;
  }

  /**
   * The space a word starts with would indent a line that follows from a full one.
   * @param {number} pos
   * @param {boolean} leads
   */
  span(pos, leads) {
    const { head, ends, width } = this.measure.of(this.pieces[pos]);
    const name = this.nameOf(pos);
    const node = el(
      "span",
      { class: "fx-token", id: `fx-token-${pos}`, role: "option", "data-pos": pos, "aria-label": name },
      leads && head.length > 1 && head.startsWith(" ") ? head.slice(1) : head,
    );
    if (ends) {
      node.classList.add("fx-breaks");
      for (let i = 0; i < ends; i += 1) node.append(el("span", { class: "fx-newline", "aria-hidden": "true" }));
    }
    if (width > this.laidWidth) node.classList.add("fx-cut");
    const span = Object.assign(node, { fxPos: pos });
    this.paint(span, pos);
    return span;
  }

  // Every token on the page now.
  *spans() {
    for (const line of this.drawnLines.values())
      for (const node of line.children) if (node.fxPos !== undefined) yield node;
  }

  repaint() {
    for (const span of this.spans()) this.paint(span, span.fxPos);
  }

  /** @param {number} pos */
  indexOf(pos) {
    if (this.all) return pos;
    return lowerBound(this.shown.length, (i) => this.shown[i] < pos);
  }

  /** @param {number} pos */
  has(pos) {
    return this.shown[this.indexOf(pos)] === pos;
  }

  /**
   * A token itself when it is shown, else the next one that is, or the last; itself where none is.
   * @param {number} pos
   */
  nearest(pos) {
    return this.shown[Math.min(this.indexOf(pos), this.shown.length - 1)] ?? pos;
  }

  /**
   * The line a token stands in; the nearest one after it when it is hidden.
   * @param {number} pos
   */
  lineOf(pos) {
    const index = Math.min(this.indexOf(pos), this.shown.length - 1);
    return Math.max(
      0,
      Math.min(
        this.lines.length - 1,
        lowerBound(this.lines.length, (i) => this.lines[i].end <= index),
      ),
    );
  }

  /**
   * @param {number} pos
   * @returns {TokenSpan | null}
   */
  spanOf(pos) {
    return this.window.querySelector(`[data-pos="${pos}"]`);
  }

  /**
   * Scrolls only the text, never the page; the middle for a jump, the nearest edge for a step.
   * @param {number} pos
   * @param {boolean} centre
   */
  reveal(pos, centre) {
    const top = this.lineOf(pos) * this.lineHeight;
    const { scrollTop, clientHeight } = this.node;
    if (centre) this.node.scrollTop = top - clientHeight / 2;
    else if (top < scrollTop) this.node.scrollTop = top - this.lineHeight;
    else if (top + this.lineHeight > scrollTop + clientHeight)
      this.node.scrollTop = top + 2 * this.lineHeight - clientHeight;
    this.draw();
    return this.spanOf(pos);
  }

  /**
   * The token of the next or previous line with tokens that stands nearest below or above.
   * @param {number} pos
   * @param {number} step
   * @param {number} [lines]
   * @returns {number | null}
   */
  neighbour(pos, step, lines = 1) {
    const from = this.spanOf(pos) || this.reveal(pos, true);
    if (from === null) return null;
    const { left } = from.getBoundingClientRect();
    let at = this.lineOf(pos) + step * lines;
    at = Math.max(0, Math.min(this.lines.length - 1, at));
    while (this.lines[at] && this.lines[at].first === this.lines[at].end) at += step;
    if (!this.lines[at] || at === this.lineOf(pos)) return null;
    this.reveal(this.shown[this.lines[at].first], false);
    const line = /** @type {HTMLElement} */ (this.drawnLines.get(at)); // drawn by `reveal`
    const spans = [.../** @type {NodeListOf<TokenSpan>} */ (line.querySelectorAll(".fx-token"))];
    /** @param {Element} span */
    const gap = (span) => Math.abs(span.getBoundingClientRect().left - left);
    return spans.reduce((best, span) => (gap(span) < gap(best) ? span : best)).fxPos;
  }
}

/** @param {number} count */
function gapMark(count) {
  return el("span", { class: "fx-gap", title: readingText.hiddenGap(format.count(count)), "aria-hidden": "true" }, "⋯");
}

/**
 * The first letter of the paragraph decides for all its lines.
 * @param {Lines} view
 * @param {number} index
 */
function paragraphDirection(view, index) {
  let at = index;
  while (at > 0 && view.lines[at].soft) at -= 1;
  for (let i = view.lines[at].first; i < view.shown.length; i += 1) {
    const letter = STRONG.exec(view.pieces[view.shown[i]]);
    if (letter) return RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
  }
  return null;
}
