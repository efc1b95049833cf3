// @ts-check
// The rows of the finder's table: how they are made, filtered and ranked.
import { format } from "../core/format.js";
import { groupName } from "../core/group-names.js";
import { groups as groupsText } from "../strings/groups.js";
/** @import { GroupPayload, GroupsPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */

/**
 * A group of a layer as a row of the table; `hits` and `selected` follow the selection.
 * @typedef {GroupPayload & { layerIndex: number, order: number, group: number, layer: number, className: string | null,
 *   name: string,
 *   lift: number | null, frequent: [string, number][], hits: number, selected: number | null }} Row
 */
/** @typedef {{ layer: string, class: string, only: string, token: string }} Filter */
/** What rows are ranked by. @typedef {string | number | null} RankValue */

/** @param {Row} row */
export const above = (row) => row.purity !== null && row.purity > /** @type {number} */ (row.null_high);

/**
 * @param {Run} run
 * @param {GroupsPayload} data
 * @returns {Row[]}
 */
export function rowsOf(run, data) {
  return data.groups.flatMap((groups, layerIndex) =>
    groups.map((group, index) => ({
      ...group,
      layerIndex,
      order: layerIndex * run.numGroups + index,
      group: index,
      layer: run.layerIds[layerIndex],
      name: groupName(run, layerIndex, index),
      className: group.top_class === null ? null : data.class_names[group.top_class],
      lift: group.base_rate ? /** @type {number} */ (group.purity) / group.base_rate : null,
      frequent: run.groups[layerIndex][index].tokens,
      hits: 0,
      selected: null,
    })),
  );
}

/**
 * @param {Row} row
 * @param {Filter} filter
 */
export function fits(row, filter) {
  if (filter.layer !== "all" && filter.layer !== `l${row.layerIndex}`) return false;
  if (filter.class !== "all" && filter.class !== row.className) return false;
  if (filter.only === "above" && !above(row)) return false;
  if (filter.only === "flagged" && row.flags.length === 0) return false;
  const query = filter.token.trim().toLowerCase();
  return (
    query === "" ||
    row.name.toLowerCase().includes(query) ||
    [...row.characteristic, ...row.frequent].some(([piece]) => piece.toLowerCase().includes(query))
  );
}

/**
 * Groups without a value come last either way.
 * @param {Row[]} rows
 * @param {(row: Row) => RankValue} value
 * @param {boolean} down
 */
export function ranked(rows, value, down) {
  /** @param {string | number} a @param {string | number} b */
  const order = (a, b) => (typeof a === "string" ? a.localeCompare(String(b)) : Number(b) - a);
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    return down ? order(x, y) : order(y, x);
  });
}

/**
 * @param {Row[]} rows
 * @param {GroupsPayload} data
 */
export function aboveWords(rows, data) {
  const filled = rows.filter((row) => row.purity !== null);
  const expected = format.count(Math.round(filled.length * 0.025));
  return groupsText.finder.above(
    format.count(filled.filter(above).length),
    format.count(filled.length),
    expected,
    format.count(data.draws),
    data.seed,
  );
}
