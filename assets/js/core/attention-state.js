// @ts-check
// The state of each run's attention measurement, which changes the answers about its groups.
/** @import { Run } from "./run.js" */

/** Run → the newest known state of its measurement. @type {WeakMap<Run, string>} */
const measuring = new WeakMap();

/**
 * Keeps a state that the server answered. A finished measurement changes the answer about the groups.
 * @param {Run} run
 * @param {string} state
 */
export const setAttentionState = (run, state) => measuring.set(run, state);

/**
 * @param {Run} run
 * @returns {string}
 */
export const attentionState = (run) => measuring.get(run) || "none";
