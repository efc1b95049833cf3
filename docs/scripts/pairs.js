// @ts-check
// Which pairs of a short text the mask keeps and why, pair by pair.
import { KEPT_CAUSES, pairCode } from "../../assets/js/core/pair-rule.js";

/** @typedef {{ topK: number, window: number, sinks: number }} Setting */
/** @typedef {{ codes: number[][], counts: number[], kept: number, all: number }} Pairs */

/**
 * @param {number[]} order groups of a token, the most probable first
 * @param {number} topK
 */
export const groupsOf = (order, topK) => order.slice(0, topK);

/**
 * @param {number[][]} order groups of every token, the most probable first
 * @param {Setting} setting `topK` groups a token, `window` as in i - j <= window, the first `sinks` tokens
 * @returns {Pairs} codes[query][key]: 0 for a dropped pair, else 1 + place in KEPT_CAUSES; counts: pairs by code
 */
export function countPairs(order, { topK, window, sinks }) {
  const counts = [0, ...KEPT_CAUSES.map(() => 0)];
  const member = order.map((groups) => new Set(groupsOf(groups, topK)));
  const codes = order.map((_, query) =>
    order.slice(0, query + 1).map((groups, key) => {
      const shared = groupsOf(groups, topK).some((group) => member[query].has(group));
      const code = pairCode(shared, query - key <= window, key < sinks);
      counts[code] += 1;
      return code;
    }),
  );
  const all = counts.reduce((sum, count) => sum + count, 0);
  return { codes, counts, kept: all - counts[0], all };
}
