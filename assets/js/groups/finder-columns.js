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
/** @import { Row } from "./finder-rows.js" */

/** @typedef {keyof typeof COLUMNS} ColumnName */

const text = groupsText.finder;

const NOTHING = text.empty;

/**
 * value: what is ranked by; cell: what is shown; below: a second, quieter line.
 * @param {keyof Row} key
 * @param {(value: any, row: Row) => Child | Child[]} show
 * @param {(row: Row) => string | null} [below]
 */
const number = (key, show, below = () => null) => ({
  value: (row) => row[key],
  cell: (row) => (row[key] === null ? NOTHING : [show(row[key], row), quiet(below(row))]),
});

/** @param {string | null} words */
const quiet = (words) => words && el("span", { class: "fx-muted fx-below" }, words);

export const COLUMNS = {
  group: { value: (row) => -row.order },
  tokens: {
    value: (row) => (row.characteristic.length ? row.characteristic[0][1] : null),
    cell: (row) =>
      el(
        "span",
        { class: "fx-frequent" },
        row.characteristic.slice(0, 3).map(([piece]) => el("code", {}, visibleToken(piece))),
      ),
  },
  class: number(
    "className",
    (name) => shortClass(name),
    (row) => text.base(format.percent(/** @type {number} */ (row.base_rate))),
  ),
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
