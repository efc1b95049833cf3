// @ts-check
// The kept pairs of a layer arranged in three ways: as the text has them, by group, each query's keys pushed together.
import { range } from "../core/arrays.js";
import { KEPT_CAUSES, near, pairCode } from "../core/pair-rule.js";
/** @import { Run } from "../core/run.js" */

export const MOST_TOKENS = 4096; // of a picture: the positions of its pairs fit 16 bits

/** @typedef {"text" | "group" | "packed"} Order */

/**
 * Where the tokens stand: each query's row, and each key's column, or null where that is its rank among the kept keys.
 * @typedef {{ row: Uint16Array, column: Uint16Array | null }} Arrangement
 */

/**
 * What this needs of a run.
 * @typedef {Pick<Run, "numTokens" | "config" | "shareGroup" | "top"> & { layers: LayerRule[] }} ArrangedRun
 * @typedef {{ sliding_window: number | null, parts: { window: number }[] }} LayerRule
 */

export class KeptPairs {
  /**
   * The layer's membership must be here. Of a longer text the first `MOST_TOKENS` tokens count.
   * @param {ArrangedRun} run
   * @param {number} layerIndex
   * @param {number} part of the layer's heads
   */
  constructor(run, layerIndex, part) {
    const { sliding_window: sliding, parts } = run.layers[layerIndex];
    const { window } = parts[part];
    const { num_sinks: sinks, window_growth: growth } = run.config;
    this.numTokens = Math.min(run.numTokens, MOST_TOKENS);
    /** Position of each token in the text sorted by group. */
    this.place = new Uint16Array(this.numTokens);
    this.groups = Uint8Array.from(range(this.numTokens), (pos) => run.top(layerIndex, pos));
    this.sorted = this.sortedByGroup();
    this.sorted.forEach((pos, place) => (this.place[pos] = place));
    const reach = sliding ?? this.numTokens;
    const room = (this.numTokens * (this.numTokens + 1)) / 2;
    const query = new Uint16Array(room);
    const key = new Uint16Array(room);
    const code = new Uint8Array(room);
    const rank = new Uint16Array(room);
    let count = 0;
    for (let i = 0; i < this.numTokens; i += 1) {
      let kept = 0;
      const nearest = i - near(window, i, growth);
      for (let j = Math.max(0, i - reach + 1); j <= i; j += 1) {
        const why = pairCode(run.shareGroup(layerIndex, i, j, part), j >= nearest, j < sinks);
        if (why === 0) continue;
        query[count] = i;
        key[count] = j;
        code[count] = why;
        rank[count] = kept;
        kept += 1;
        count += 1;
      }
    }
    this.count = count;
    this.query = query.slice(0, count);
    this.key = key.slice(0, count);
    this.code = code.slice(0, count);
    this.rank = rank.slice(0, count);
  }

  /** Tokens by group, in the order of the text within each. */
  sortedByGroup() {
    return Uint16Array.from(range(this.numTokens).sort((a, b) => this.groups[a] - this.groups[b] || a - b));
  }

  /** Of all pairs of a query and a key not after it. */
  get share() {
    return this.count / ((this.numTokens * (this.numTokens + 1)) / 2);
  }

  /**
   * @param {Order} order
   * @returns {Arrangement}
   */
  arrangement(order) {
    const text = Uint16Array.from(range(this.numTokens));
    if (order === "text") return { row: text, column: text };
    return order === "group" ? { row: this.place, column: this.place } : { row: text, column: null };
  }

  /**
   * Kept pairs in each cell of a square picture, by cause, while tokens move from one arrangement to another.
   * @param {Arrangement} from
   * @param {Arrangement} to
   * @param {number} progress 0 to 1
   * @param {number} tokens along each side of a cell
   * @returns {Uint32Array} cell by cell, row after row, with a count for each of KEPT_CAUSES
   */
  raster(from, to, progress, tokens) {
    const causes = KEPT_CAUSES.length;
    const size = Math.ceil(this.numTokens / tokens);
    const cells = new Uint32Array(size * size * causes);
    const { query, key, code, rank } = this;
    for (let at = 0; at < this.count; at += 1) {
      const i = query[at];
      const left = from.column === null ? rank[at] : from.column[key[at]];
      const right = to.column === null ? rank[at] : to.column[key[at]];
      const row = Math.floor((from.row[i] + (to.row[i] - from.row[i]) * progress) / tokens);
      const column = Math.floor((left + (right - left) * progress) / tokens);
      cells[(row * size + column) * causes + code[at] - 1] += 1;
    }
    return cells;
  }
}
