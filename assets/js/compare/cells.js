// @ts-check
// The numbers of one measured setting, and how clear they are.
import { FEWEST_REPEATS } from "./repeats.js";
import { format } from "../core/format.js";
import { intervalEnds } from "../core/interval.js";
import { settings as text } from "../strings/compare.js";
/** @import { GridCellPayload } from "../core/payloads.js" */

/** @param {number} value */
export const nats = (value) => format.signed(value, 3);

/** @param {GridCellPayload} cell */
export const interval = (cell) => intervalEnds(cell.delta_low, cell.delta_high, nats);

/**
 * Where the interval ends in a chart; at the value itself where there is none.
 * @param {GridCellPayload} cell
 */
export const reach = ({ delta_mean: mean, delta_low: low, delta_high: high }) => [low ?? mean, high ?? mean];

/**
 * Whether a whole interval lies above another; where one has none, that is not known.
 * @param {GridCellPayload} cell
 * @param {GridCellPayload} other
 */
export const clearlyAbove = ({ delta_low: low }, { delta_high: high }) => low !== null && high !== null && low > high;

/** @param {GridCellPayload} cell */
export const timeRatio = (cell) => cell.attention_focus / cell.attention_full;

/** @param {GridCellPayload} cell */
export const isClear = (cell) =>
  cell.repeats >= FEWEST_REPEATS &&
  (cell.attention_focus_high < cell.attention_full_low || cell.attention_full_high < cell.attention_focus_low);

/** @param {GridCellPayload} cell */
export const hedge = (cell) =>
  isClear(cell) ? "" : cell.repeats < FEWEST_REPEATS ? text.tooFew(cell.repeats) : text.overlap;

/**
 * @param {string} kind
 * @param {number} topK
 * @param {number} window
 */
export const keyOf = (kind, topK, window) => `${kind}/${topK}/${window}`;

/**
 * @param {number} base
 * @param {number} delta
 */
export const perplexityAt = (base, delta) => base * Math.exp(delta);
