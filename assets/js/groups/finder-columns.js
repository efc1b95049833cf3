// @ts-check
// The columns of the finder's table.
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { visibleToken } from "../core/labels.js";
import { shareBar } from "../core/widgets.js";
import { shortClass } from "../core/word-classes.js";
import { above } from "./finder-rows.js";
import { groups as groupsText } from "../strings/groups.js";
/** @import { Child } from "../core/types.js" */
/** @import { RankValue, Row } from "./finder-rows.js" */

/** @typedef {keyof typeof groupsText.finder.columns} ColumnName */
/**
 * `value`: what is ranked by; `cell`: what is shown, but for the heading of the row; `lettered`: A ranks first.
 * @typedef {{ value: (row: Row) => RankValue, cell?: (row: Row) => Child | Child[], lettered?: boolean }} Column
 */
/** @typedef {{ [K in keyof Row]: Row[K] extends RankValue ? K : never }[keyof Row]} RankedKey */

const text = groupsText.finder;

const NOTHING = text.empty;

/**
 * `show` makes the cell of a value, `below` its second, quieter line.
 * @template {RankedKey} Key
 * @param {Key} key
 * @param {(value: NonNullable<Row[Key]>, row: Row) => Child} show
 * @param {(row: Row) => string | null} [below]
 * @returns {Column}
 */
const number = (key, show, below = () => null) => ({
  value: (row) => row[key],
  cell(row) {
    const value = row[key];
    if (value === null) return NOTHING;
    const second = below(row);
    return [show(value, row), second === null ? null : quiet(second)];
  },
});

/** @param {string} words */
const quiet = (words) => el("span", { class: "fx-muted fx-below" }, words);

/** @type {Record<ColumnName, Column>} */
export const COLUMNS = {
  group: { value: (row) => -row.order, lettered: true },
  tokens: {
    value: (row) => (row.characteristic.length ? row.characteristic[0][1] : null),
    cell: (row) =>
      el(
        "span",
        { class: "fx-frequent" },
        row.characteristic.slice(0, 3).map(([piece]) => el("code", {}, visibleToken(piece))),
      ),
  },
  class: {
    ...number(
      "className",
      (name) => shortClass(name),
      (row) => text.base(format.percent(/** @type {number} */ (row.base_rate))),
    ),
    lettered: true,
  },
  purity: number(
    "purity",
    (value, row) => el("span", { class: above(row) ? "fx-above" : null }, format.percent(value)),
    (row) =>
      text.shuffled(
        format.percent(/** @type {number} */ (row.null_mean)),
        format.percent(/** @type {number} */ (row.null_high)),
      ),
  ),
  share: number(
    "share",
    (value) => format.percent(value, 1),
    (row) => text.even(format.ratio(row.balance)),
  ),
  selected: { value: (row) => row.selected, cell: (row) => selectedCell(row) },
  confidence: number("confidence", (value) => format.percent(value)),
  entropy: number("entropy", (value) => format.decimal(value, 2)),
  lift: number("lift", (value) => format.ratio(value)),
  mass: number("attention_mass", (value) => format.percent(value, 1)),
};

/** @param {Row} row */
export const selectedCell = (row) => {
  if (row.selected === null) return [NOTHING, quiet("\u00a0")];
  return [
    el("span", { class: "fx-finder-selected" }, shareBar(row.selected, `g${row.group}`), format.percent(row.selected)),
    quiet(text.selectedBelow(format.count(row.hits), format.count(row.tokens))),
  ];
};
