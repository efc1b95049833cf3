// @ts-check
// The stored block counts of one layer's mask.
import { range } from "./arrays.js";
import { decodeBase64, expectLength } from "./bytes.js";
/** @import { MaskPayload } from "./payloads.js" */
/** @import { Cause } from "./types.js" */

export class Mask {
  /** @param {MaskPayload} answer */
  constructor(answer) {
    this.blockSize = answer.block_size;
    this.numBlocks = answer.num_blocks;
    this.causes = /** @type {Cause[]} */ (answer.causes);
    this.cells = (answer.num_blocks * (answer.num_blocks + 1)) / 2;
    const words = new Uint32Array(decodeBase64(answer.counts).buffer);
    this.counts = expectLength("counts", words, this.cells * answer.causes.length);
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  blockCounts(row, column) {
    const cell = (row * (row + 1)) / 2 + column;
    return this.causes.map((_, cause) => this.counts[cause * this.cells + cell]);
  }

  /** @param {number} row */
  rowCounts(row) {
    const first = (row * (row + 1)) / 2;
    return this.causes.map((_, cause) => {
      let sum = 0;
      for (let cell = first; cell <= first + row; cell += 1) sum += this.counts[cause * this.cells + cell];
      return sum;
    });
  }

  /**
   * Rows of the lower triangle, null above the diagonal; `value` maps the counts of a block to a number.
   * @param {(counts: number[]) => number} value
   */
  matrix(value) {
    return range(this.numBlocks).map((row) =>
      range(this.numBlocks).map((column) => (column > row ? null : value(this.blockCounts(row, column)))),
    );
  }
}
