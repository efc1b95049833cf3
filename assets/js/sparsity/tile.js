// @ts-check
// A rectangle of the mask in cells: counts of pairs by cause.
import { range, sum } from "../core/arrays.js";

const WORDS = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array };

// A rectangle of the mask in cells: whole blocks of pairs, or single pairs when `blockSize` is 1.
export class MaskTile {
  constructor(answer) {
    this.blockSize = answer.block_size;
    this.rows = [answer.rows[0], answer.rows[1] - 1];
    this.keys = [answer.keys[0], answer.keys[1] - 1];
    this.numRows = answer.num_rows;
    this.numColumns = answer.num_columns;
    this.causes = answer.causes;
    const bytes = Uint8Array.from(atob(answer.counts), (char) => char.charCodeAt(0));
    this.counts = new WORDS[answer.bytes](bytes.buffer);
  }

  // The same interface over the blocks stored with the run.
  static whole(mask, numTokens) {
    const tile = Object.create(MaskTile.prototype);
    const all = [0, numTokens - 1];
    const none = mask.causes.map(() => 0);
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

  blockCounts(row, column) {
    const cells = this.numRows * this.numColumns;
    return this.causes.map((_, cause) => this.counts[cause * cells + row * this.numColumns + column]);
  }

  // null where no token sees a later one.
  matrix(value) {
    return range(this.numRows).map((row) =>
      range(this.numColumns).map((column) => {
        const counts = this.blockCounts(row, column);
        return sum(counts) === 0 ? null : value(counts);
      }),
    );
  }

  span(side, cell) {
    const first = side[0] + cell * this.blockSize;
    return [first, Math.min(first + this.blockSize - 1, side[1])];
  }

  rowSpan(row) {
    return this.span(this.rows, row);
  }

  keySpan(column) {
    return this.span(this.keys, column);
  }

  centres(side, count) {
    return range(count).map((cell) => side[0] + (cell + 0.5) * this.blockSize - 0.5);
  }
}
