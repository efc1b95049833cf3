// @ts-check
// A keyboard cursor on one cell of the mask: moves from cell to cell, describes the cell, and selects.
import { sum } from "../core/arrays.js";
import { el, newId } from "../core/dom.js";
import { format } from "../core/format.js";
import { cssColour } from "../core/theme.js";
import { pairReason } from "./pair-details.js";
import { pairs as pairsText, sparsity as sparsityText } from "../strings/sparsity.js";
/** @import { ZoomMask } from "./mask.js" */

/** In tokens. @typedef {{ query: number, key: number }} Place */

const text = pairsText.cursor;

/** By key: rows down and columns to the right. @type {Record<string, [number, number]>} */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Its place is kept in tokens, so that it stays where it is when the picture is zoomed, moved or of another layer.
export class MaskCursor {
  /** @param {ZoomMask} mask */
  constructor(mask) {
    this.mask = mask;
    /** @type {Place | null} */
    this.place = null;
    this.description = el(
      "p",
      {
        class: "fx-help fx-mask-description",
        id: newId("mask-description"),
        "aria-live": "polite",
        "data-testid": "fx-mask-description",
      },
      text.help,
    );
  }

  /**
   * Whether the key was meant for the cursor.
   * @param {KeyboardEvent} event
   */
  key(event) {
    if (event.key === "Enter") this.enter();
    else if (this.place === null) return false;
    else if (event.key === "Escape") this.hide();
    else if (event.key in STEPS && !event.shiftKey) this.step(...STEPS[event.key]);
    else return false;
    return true;
  }

  enter() {
    if (this.place === null) this.show();
    else this.mask.click({ pointNumber: this.cell() });
  }

  show() {
    const { tile } = this.mask;
    const row = Math.floor(tile.numRows * (this.mask.view ? 0.5 : 0.7));
    const column = Math.floor(tile.numColumns * (this.mask.view ? 0.5 : 0.3));
    this.put(tile.rowSpan(row)[0], tile.keySpan(column)[0]);
  }

  hide() {
    if (this.place === null) return;
    this.place = null;
    this.description.textContent = text.help;
    this.mask.app.tooltip.hide();
    this.mask.redrawShapes();
  }

  /**
   * Beyond the edge of a closer look the picture moves along.
   * @param {number} down
   * @param {number} right
   */
  step(down, right) {
    const { mask } = this;
    const { tile } = mask;
    const place = /** @type {Place} */ (this.place); // its keys count only while it is there
    const last = mask.run.numTokens - 1;
    /** @param {number} pos @param {number} by */
    const next = (pos, by) => Math.max(0, Math.min(last, pos + by * tile.blockSize));
    const [query, key] = [next(place.query, down), next(place.key, right)];
    const outside = query < tile.rows[0] || query > tile.rows[1] || key < tile.keys[0] || key > tile.keys[1];
    if (!outside) this.put(query, key);
    else if (key <= query) {
      this.place = { query, key };
      mask.move(down, right);
    }
  }

  /**
   * Above the diagonal there are no pairs: there the cursor goes to the last key its queries may look at.
   * @param {number} query
   * @param {number} key
   */
  put(query, key) {
    const { tile } = this.mask;
    const [row, column] = this.cell({ query, key });
    let nearest = column;
    while (nearest > 0 && sum(tile.blockCounts(row, nearest)) === 0) nearest -= 1;
    if (sum(tile.blockCounts(row, nearest)) === 0) {
      if (this.place === null) this.place = { query, key: Math.min(key, query) };
    } else {
      this.place = { query, key: nearest === column ? key : tile.keySpan(nearest)[0] };
    }
    this.mask.redrawShapes();
    this.describe();
  }

  /** @param {Place} [place] */
  cell({ query, key } = /** @type {Place} */ (this.place)) {
    const { tile } = this.mask;
    /** @param {[number, number]} side @param {number} count @param {number} pos */
    const within = (side, count, pos) => Math.max(0, Math.min(count - 1, Math.floor((pos - side[0]) / tile.blockSize)));
    return [within(tile.rows, tile.numRows, query), within(tile.keys, tile.numColumns, key)];
  }

  // The picture was drawn anew: another part, another layer or other colours.
  follow() {
    if (this.place !== null) this.put(this.place.query, this.place.key);
  }

  // As fractions of the picture, for zooming around the cursor.
  centre() {
    const { tile } = this.mask;
    const [row, column] = this.cell();
    return { x: (column + 0.5) / tile.numColumns, y: (row + 0.5) / tile.numRows };
  }

  describe() {
    const { mask } = this;
    const point = { pointNumber: this.cell() };
    this.description.textContent = this.words(.../** @type {[number, number]} */ (point.pointNumber));
    const area = mask.plot.querySelector(".nsewdrag");
    const content = mask.hover(point);
    if (!area || !content || document.activeElement !== mask.plot) return;
    const box = area.getBoundingClientRect();
    const { x, y } = this.centre();
    const [left, top] = [box.left + box.width * x, box.top + box.height * y];
    const half = box.height / mask.tile.numRows / 2;
    mask.app.tooltip.show(content, { left, right: left, width: 0, top: top - half, bottom: top + half });
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  words(row, column) {
    const { tile, app } = this.mask;
    const counts = tile.blockCounts(row, column);
    const total = sum(counts);
    if (total === 0) return text.none;
    if (tile.blockSize === 1) {
      const [query, key] = [tile.rowSpan(row)[0], tile.keySpan(column)[0]];
      /** @param {number} pos */
      const token = (pos) => app.run.tokenLabel(pos);
      return text.pair(
        format.count(query),
        token(query),
        format.count(key),
        token(key),
        pairReason(app, query, key, tile.causes[counts.indexOf(1)]),
      );
    }
    const { blockTitle, causes, pairs } = sparsityText;
    const ends = [...tile.rowSpan(row), ...tile.keySpan(column)].map(format.count);
    const title = blockTitle(.../** @type {[string, string, string, string]} */ (ends));
    const parts = counts.flatMap((count, i) =>
      count > 0
        ? [text.part(causes[tile.causes[i]], pairs(format.count(count), format.percent(count / total, 1)))]
        : [],
    );
    return text.block(title, parts.join(", "));
  }

  shapes() {
    if (this.place === null) return [];
    const { tile, app } = this.mask;
    const [row, column] = this.cell();
    /** @param {string} name */
    const colour = (name) => cssColour(app.root, name);
    const frame = {
      type: "rect",
      xref: "x",
      yref: "y",
      x0: tile.keySpan(column)[0] - 0.5,
      x1: tile.keySpan(column)[0] + tile.blockSize - 0.5,
      y0: tile.rowSpan(row)[0] - 0.5,
      y1: tile.rowSpan(row)[0] + tile.blockSize - 0.5,
    };
    // Light around dark, to be seen on every colour of the mask.
    return [
      { ...frame, line: { color: colour("bg"), width: 6 } },
      { ...frame, line: { color: colour("text"), width: 3 } },
    ];
  }
}
