// @ts-check
// Statistics as text: names, numbers with intervals, and what a number cannot be distinguished from.
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { shortClass } from "../core/word-classes.js";
import { statistics as text } from "../strings/statistics.js";
/** @import { StatisticColumnsPayload } from "../core/payloads.js" */
/** @import { NumberKey, RowOf } from "./rows.js" */

/** One statistic as a row. @typedef {RowOf<StatisticColumnsPayload>} StatisticRow */
/** A statistic or one of its bounds. @typedef {NumberKey<StatisticRow>} StatisticNumber */

/** @param {StatisticRow} row */
export const statKey = (row) => (row.category ? `${row.statistic}.${row.category}` : row.statistic);

/** @param {StatisticRow} row */
export const statName = (row) => text.name(row.title, text.schemes[row.category]);

/**
 * Rows by the title of their family, in their order.
 * @param {Iterable<StatisticRow>} rows
 * @returns {Map<string, StatisticRow[]>}
 */
export function byFamily(rows) {
  /** @type {Map<string, StatisticRow[]>} */
  const families = new Map();
  for (const row of rows) families.set(row.family, [...(families.get(row.family) ?? []), row]);
  return families;
}

/**
 * A tag in words, with the tag itself; word lists have words of their own.
 * @param {string} scheme
 * @param {string} category
 * @returns {string}
 */
export const statCategory = (scheme, category) => {
  if (!category) return text.groups.noTag;
  if (scheme === "word") return shortClass(category);
  const name = text.tags[scheme][category];
  return name ? text.tag(name, category) : category;
};

/**
 * A share in per cent, or a number with the digits it deserves.
 * @param {number | null} digits
 * @param {number | null | undefined} value
 * @param {boolean} [signed]
 * @returns {string}
 */
export const statNumber = (digits, value, signed = false) => {
  if (value === null || value === undefined) return text.none;
  if (digits === null) return signed ? format.signedPercent(value) : format.percent(value, 1);
  return signed ? format.signed(value, digits) : format.decimal(value, digits);
};

/**
 * @param {number | null} digits
 * @param {number | null | undefined} [low]
 * @param {number | null | undefined} [high]
 * @param {boolean} [signed]
 * @returns {string | null}
 */
export const statInterval = (digits, low, high, signed = false) => {
  if (low === null || low === undefined || high === null || high === undefined) return null;
  return text.interval(statNumber(digits, low, signed), statNumber(digits, high, signed));
};

/**
 * What a number cannot be distinguished from, in words; null when it can.
 * @param {StatisticRow} row
 * @returns {string | null}
 */
export const indistinctWords = (row) => {
  const shuffled = row.from_shuffled === "same";
  const random = row.from_random === "same";
  if (shuffled && random) return text.indistinct.both;
  if (shuffled) return text.indistinct.shuffled;
  if (random) return text.indistinct.random;
  return row.from_shuffled === "below" ? text.indistinct.below : null;
};

/** @param {StatisticRow} row */
export const isIndistinct = (row) => row.from_shuffled === "same" || row.from_random === "same";

/**
 * Whether a number is more or less than by chance, in words; also where that cannot be told.
 * @param {StatisticRow} row
 * @returns {string}
 */
export function chanceVerdict(row) {
  const { verdicts } = text.questions;
  if (row.from_shuffled === null) return row.value === row.shuffled ? verdicts.equal : verdicts.unknown;
  if (isIndistinct(row)) return verdicts.same(/** @type {string} */ (indistinctWords(row)));
  if (row.from_shuffled === "below") return verdicts.below;
  return row.from_random === "below" ? verdicts.belowRandom : verdicts.above;
}

/**
 * @param {number | null} digits
 * @param {number | null | undefined} value
 * @param {number | null | undefined} [low]
 * @param {number | null | undefined} [high]
 * @param {boolean} [signed]
 */
export const statCell = (digits, value, low, high, signed = false) => [
  statNumber(digits, value, signed),
  small(statInterval(digits, low, high, signed)),
];

/** @param {string | null} words */
const small = (words) => (words === null ? null : el("span", { class: "fx-interval" }, words));
