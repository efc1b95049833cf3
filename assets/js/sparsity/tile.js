// @ts-check
// A rectangle of the mask in cells: counts of pairs by cause.
import { range, sum } from "../core/arrays.js";
import { decodeBase64 } from "../core/bytes.js";
/** @import { Mask } from "../core/mask.js" */
/** @import { MaskTilePayload } from "../core/payloads.js" */
/** @import { Cause } from "../core/types.js" */

/**
 * By the bytes of a count.
 * @type {Record<number, Uint8ArrayConstructor | Uint16ArrayConstructor | Uint32ArrayConstructor>}
 */
const WORDS = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array };

// A rectangle of the mask in cells: whole blocks of pairs, or single pairs when `blockSize` is 1.
export class MaskTile {
  /** @param {MaskTilePayload} answer */
  constructor(answer) {
    this.blockSize = answer.block_size;
    /** @type {[number, number]} */
    this.rows = [answer.rows[0], answer.rows[1] - 1];
    /** @type {[number, number]} */
    this.keys = [answer.keys[0], answer.keys[1] - 1];
    this.numRows = answer.num_rows;
    this.numColumns = answer.num_columns;
    this.causes = /** @type {Cause[]} */ (answer.causes);
    this.counts = new WORDS[answer.bytes](decodeBase64(answer.counts).buffer);
  }

  /**
   * The same interface over the blocks stored with the run.
   * @param {Mask} mask
   * @param {number} numTokens
   * @returns {MaskTile}
   */
  static whole(mask, numTokens) {
    const tile = Object.create(MaskTile.prototype);
    const all = [0, numTokens - 1];
    const none = mask.causes.map(() => 0);
    /** @param {number} row @param {number} column */
    const blockCounts = (row, column) => (column > row ? none : mask.blockCounts(row, column));
    return Object.assign(tile, {
      blockSize: mask.blockSize,
      rows: all,
      keys: all,
      numRows: mask.numBlocks,
      numColumns: mask.numBlocks,
      causes: mask.causes,
      blockCounts,
    });
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  blockCounts(row, column) {
    const cells = this.numRows * this.numColumns;
    return this.causes.map((_, cause) => this.counts[cause * cells + row * this.numColumns + column]);
  }

  /**
   * null where no token sees a later one.
   * @param {(counts: number[]) => number} value
   */
  matrix(value) {
    return range(this.numRows).map((row) =>
      range(this.numColumns).map((column) => {
        const counts = this.blockCounts(row, column);
        return sum(counts) === 0 ? null : value(counts);
      }),
    );
  }

  /**
   * @param {[number, number]} side
   * @param {number} cell
   * @returns {[number, number]}
   */
  span(side, cell) {
    const first = side[0] + cell * this.blockSize;
    return [first, Math.min(first + this.blockSize - 1, side[1])];
  }

  /** @param {number} row */
  rowSpan(row) {
    return this.span(/** @type {[number, number]} */ (this.rows), row);
  }

  /** @param {number} column */
  keySpan(column) {
    return this.span(/** @type {[number, number]} */ (this.keys), column);
  }

  /**
   * @param {[number, number]} side
   * @param {number} count
   */
  centres(side, count) {
    return range(count).map((cell) => side[0] + (cell + 0.5) * this.blockSize - 0.5);
  }
}
