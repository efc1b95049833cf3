// @ts-check
// Why a query attends to a key: the rule of the executed mask for one pair of tokens.

/** @import { Cause } from "./types.js" */

/** First and last position of the growth of windows. @typedef {readonly number[]} Growth */

/** @type {Cause[]} */
export const KEPT_CAUSES = ["local_only", "group_only", "local_and_group", "sink_only"];

/** Of windows that do not grow. @type {Growth} */
const CONSTANT = [1, 1];

/**
 * How far back a query sees every key, whatever the groups; a layer's own sliding window aside.
 * @param {number} window
 * @param {number} query its position
 * @param {Growth} [growth]
 */
export const near = (window, query, [first, last] = CONSTANT) =>
  Math.floor((window * Math.min(Math.max(query, first), last)) / first);

const NEAR = 1;

const SHARED = 2;

const SINK = 4;

/**
 * 0 for a dropped pair; else 1 + place in KEPT_CAUSES, so that both is the sum of near and same group.
 * @param {boolean} shared whether the two tokens share a group
 * @param {boolean} near whether the key lies in the window
 * @param {boolean} sink whether the key is one of the first tokens, which all see
 */
export const pairCode = (shared, near, sink) => {
  const code = (near ? NEAR : 0) + (shared ? SHARED : 0);
  return code === 0 && sink ? SINK : code;
};
