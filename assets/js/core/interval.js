// @ts-check
// 95 % intervals, which one observation does not have: both ends are null then.
import { common as text } from "../strings/common.js";

/**
 * An interval in words, or that there is none.
 * @param {number | null} low
 * @param {number | null} high
 * @param {(value: number) => string} number
 */
export const intervalEnds = (low, high, number) =>
  low === null || high === null ? text.noInterval : text.interval(number(low), number(high));

/**
 * The same within a sentence that has not said what interval it is.
 * @param {number | null} low
 * @param {number | null} high
 * @param {(value: number) => string} number
 */
export const interval95 = (low, high, number) =>
  low === null || high === null ? text.noInterval : text.interval95(intervalEnds(low, high, number));

/**
 * On which side of zero an interval lies: 1, -1, or 0 where it holds zero or there is none.
 * @param {number | null} low
 * @param {number | null} high
 */
export const sideOfZero = (low, high) => (low !== null && low > 0 ? 1 : high !== null && high < 0 ? -1 : 0);
