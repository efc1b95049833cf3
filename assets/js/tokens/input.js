// @ts-check
// Selection of tokens by pointer and keyboard in the Tokens view.
import { selectRange, selectToken } from "../core/selection.js";
/** @import { TokensView } from "./view.js" */

const DRAG_SLACK = 4; // pixels that the pointer may move during a click
// ms between selections while dragging: browsers slow down pages that rewrite their address more often
const DRAG_PAUSE = 60;

export class TokenInput {
  /**
   * Listens on the view's text.
   * @param {TokensView} view
   */
  constructor(view) {
    this.view = view;
    this.dragging = false;
    /** Where the pointer went down. @type {{ pos: number, x: number, y: number } | null} */
    this.dragFrom = null;
    /** @type {number | null} */
    this.dragTo = null;
    this.draggedAt = 0;
    /** @type {number | null} */
    this.anchor = null;
    const { text } = view;
    text.addEventListener("keydown", (event) => this.keyDown(event));
    text.addEventListener("copy", (event) => this.copy(event));
    text.addEventListener("pointerdown", (event) => this.pointerDown(event));
    text.addEventListener("pointermove", (event) => this.pointerMove(event));
    text.addEventListener("click", (event) => this.click(event));
  }

  /** Forgets where the last selection began. */
  reset() {
    this.anchor = null;
  }

  /** @param {PointerEvent} event */
  pointerDown(event) {
    const span = this.view.spanOf(event);
    this.dragging = false;
    this.dragTo = null;
    this.dragFrom =
      span && event.button === 0 && event.pointerType === "mouse"
        ? { pos: span.fxPos, x: event.clientX, y: event.clientY }
        : null;
    if (this.dragFrom === null) return;
    /** @param {PointerEvent} up */
    const released = (up) => this.released(up);
    window.addEventListener("pointerup", released, { once: true });
  }

  /**
   * Outside the text no click follows that would end a drag.
   * @param {PointerEvent} event
   */
  released(event) {
    if (!this.dragging || this.view.text.contains(/** @type {Node | null} */ (event.target))) return;
    this.selectDragged();
    this.dragging = false;
    this.dragTo = null;
  }

  /** @param {PointerEvent} event */
  pointerMove(event) {
    if (!this.dragFrom || (event.buttons & 1) === 0) return;
    const span = this.view.spanOf(event);
    const moved = Math.hypot(event.clientX - this.dragFrom.x, event.clientY - this.dragFrom.y);
    if (!span || moved < DRAG_SLACK || (!this.dragging && span.fxPos === this.dragFrom.pos)) return;
    this.dragging = true;
    this.view.app.tooltip.hide();
    if (this.dragTo === span.fxPos) return;
    this.dragTo = span.fxPos;
    this.anchor = this.dragFrom.pos;
    if (performance.now() - this.draggedAt > DRAG_PAUSE) this.selectDragged();
  }

  selectDragged() {
    this.draggedAt = performance.now();
    if (this.dragFrom === null || this.dragTo === null) return;
    this.view.app.select(selectRange(this.dragFrom.pos, this.dragTo));
  }

  /** @param {MouseEvent} event */
  click(event) {
    const span = this.view.spanOf(event);
    const dragged = this.dragging;
    if (dragged) this.selectDragged();
    this.dragging = false;
    this.dragTo = null;
    if (!span || dragged) return;
    const anchor = event.shiftKey ? this.rangeStart() : null;
    this.view.moveTo(span.fxPos);
    this.view.app.tooltip.hide(); // the panel says the same and more
    if (anchor === null) this.choose(span.fxPos);
    else this.view.app.select(selectRange(anchor, span.fxPos));
  }

  /** @param {number} pos */
  choose(pos) {
    this.anchor = pos;
    this.view.app.toggleSelection(selectToken(pos));
  }

  rangeStart() {
    return this.anchor === null || this.view.app.selection === null ? this.view.current : this.anchor;
  }

  /** @param {KeyboardEvent} event */
  keyDown(event) {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (this.view.lines.has(this.view.current)) this.choose(this.view.current);
      return;
    }
    const target = event.ctrlKey || event.metaKey || event.altKey ? undefined : this.keyTarget(event.key);
    if (target === undefined) return;
    event.preventDefault();
    if (target === null || target < 0 || target >= this.view.run.numTokens) return;
    const anchor = event.shiftKey ? this.rangeStart() : null;
    const span = this.view.moveTo(target);
    if (anchor !== null) {
      this.anchor = anchor;
      this.view.app.select(selectRange(anchor, target));
    } else if (span) this.view.describe(span);
  }

  /**
   * undefined: not a key of this view; null: there is nothing in that direction.
   * @param {string} key
   * @returns {number | null | undefined}
   */
  keyTarget(key) {
    const { lines, current } = this.view;
    const { shown } = lines;
    const screen = Math.max(1, Math.floor(lines.node.clientHeight / lines.lineHeight) - 2);
    const at = Math.min(lines.indexOf(current), shown.length - 1);
    /** @param {number} index */
    const inShown = (index) => (index >= 0 && index < shown.length ? shown[index] : null);
    /** @type {Record<string, () => number | null>} */
    const targets = {
      ArrowRight: () => inShown(at + 1),
      ArrowLeft: () => inShown(at - 1),
      ArrowDown: () => lines.neighbour(current, 1),
      ArrowUp: () => lines.neighbour(current, -1),
      PageDown: () => lines.neighbour(current, 1, screen),
      PageUp: () => lines.neighbour(current, -1, screen),
      Home: () => inShown(0),
      End: () => inShown(shown.length - 1),
    };
    return key in targets ? targets[key]() : undefined;
  }

  /**
   * The exact text of the selected tokens, line ends and all, however it is broken on screen.
   * @param {ClipboardEvent} event
   */
  copy(event) {
    const { selection } = this.view.app;
    if (selection === null) return;
    event.preventDefault();
    /** @type {DataTransfer} */ (event.clipboardData).setData(
      "text/plain",
      Array.from(selection.positions, (pos) => this.view.run.text(pos, pos + 1)).join(""),
    );
  }
}
