// @ts-check
// Pairs that a layer would keep under another top-k, window and number of sinks, counted without going through them.
import { decodeBase64, expectLength } from "../core/bytes.js";
import { near } from "../core/pair-rule.js";
/** @import { Growth } from "../core/pair-rule.js" */

/**
 * @typedef {object} PairRule
 * @property {number} window
 * @property {number} sinks
 * @property {number | null} sliding the layer's own window: keys farther back are never seen
 * @property {Growth} [growth] of the window
 */

/** The groups of every token of a layer, by probability. */
export class GroupOrder {
  /**
   * @param {string} bytes base64 of (T, K) groups, the most probable first
   * @param {number} numTokens
   * @param {number} numGroups
   * @param {[number, number, number][]} [fixed] tokens with a set of their own whatever the top-k, but 0: position, two
   *   words
   */
  constructor(bytes, numTokens, numGroups, fixed = []) {
    this.fixed = fixed;
    this.order = expectLength("orders", decodeBase64(bytes), numTokens * numGroups);
    this.numTokens = numTokens;
    this.numGroups = numGroups;
    /** @type {Map<number, GroupSets>} */
    this.kept = new Map();
  }

  /**
   * What the tokens' sets of groups are under a top-k.
   * @param {number} topK
   */
  sets(topK) {
    let sets = this.kept.get(topK);
    if (sets === undefined) {
      const words = new Uint32Array(this.numTokens * 2);
      for (let pos = 0; pos < this.numTokens; pos += 1)
        for (let rank = 0; rank < topK; rank += 1) {
          const group = this.order[pos * this.numGroups + rank];
          words[pos * 2 + (group >> 5)] |= 1 << (group & 31);
        }
      if (topK > 0) for (const [pos, low, high] of this.fixed) words.set([low, high], pos * 2);
      sets = new GroupSets(words);
      this.kept.set(topK, sets);
    }
    return sets;
  }
}

/** Sets of groups of every token, as pairs of 32-bit words, and the different ones among them. */
export class GroupSets {
  /** @param {Uint32Array} words (T, 2) */
  constructor(words) {
    this.words = words;
    this.numTokens = words.length / 2;
    /** Which of the different sets each token has. */
    this.ids = new Uint32Array(this.numTokens);
    /** @type {Map<string, number>} */
    const known = new Map();
    /** @type {number[]} */
    const different = [];
    for (let pos = 0; pos < this.numTokens; pos += 1) {
      const [low, high] = [words[pos * 2], words[pos * 2 + 1]];
      const name = `${low},${high}`;
      const id = known.get(name) ?? known.size;
      if (id === known.size) {
        known.set(name, id);
        different.push(low, high);
      }
      this.ids[pos] = id;
    }
    this.different = Uint32Array.from(different);
  }

  /**
   * @param {number} pos
   * @param {number} other
   */
  share(pos, other) {
    const { words } = this;
    return ((words[pos * 2] & words[other * 2]) | (words[pos * 2 + 1] & words[other * 2 + 1])) !== 0;
  }

  /**
   * Pairs kept under a rule: near ones and sinks are counted by arithmetic, far ones by how many earlier tokens have
   * each of the different sets, which grows with the text and not with its square.
   * @param {PairRule} rule
   */
  kept({ window, sinks, sliding, growth }) {
    const { ids, different, numTokens } = this;
    const far = new Uint32Array(different.length / 2); // tokens beyond the window and behind the sinks, by their set
    let [count, entered, left] = [0, sinks, sinks]; // tokens that are far are those from left up to entered
    for (let query = 0; query < numTokens; query += 1) {
      const first = sliding === null ? 0 : Math.max(0, query - sliding + 1);
      const nearest = Math.max(first, query - near(window, query, growth)); // first key in the window; it never falls
      for (; entered < nearest; entered += 1) far[ids[entered]] += 1;
      for (; left < Math.min(first, entered); left += 1) far[ids[left]] -= 1;
      count += query - nearest + 1 + Math.max(0, Math.min(sinks, nearest) - first);
      const [low, high] = [different[ids[query] * 2], different[ids[query] * 2 + 1]];
      for (let set = 0; set < far.length; set += 1)
        if (((low & different[set * 2]) | (high & different[set * 2 + 1])) !== 0) count += far[set];
    }
    return count;
  }
}
