// @ts-check
// Settings of a run or of a centroid file in words, budgets among them: which heads these change.
import { format } from "./format.js";
import { centroids as text } from "../strings/centroids.js";
/** @import { CentroidChangesPayload, HeadExceptionPayload } from "./payloads.js" */

/** @typedef {{ full: number, alone: number, topK: number, other: number }} Changes */
/** @typedef {{ layers: Changes, heads: Changes, queryHeads: Changes }} AllChanges */

/** @returns {Changes} */
const none = () => ({ full: 0, alone: 0, topK: 0, other: 0 });

/**
 * How many heads, query heads and whole layers a budget changes: to full attention, to no groups, in their top-k, in
 * their window.
 * @param {HeadExceptionPayload[]} budget
 * @returns {AllChanges}
 */
export function countChanges(budget) {
  const counts = { layers: none(), heads: none(), queryHeads: none() };
  for (const entry of budget) {
    const place = entry.query_head !== undefined ? "queryHeads" : entry.head !== undefined ? "heads" : "layers";
    counts[place][kindOf(entry)] += 1;
  }
  return counts;
}

/**
 * @param {HeadExceptionPayload} entry
 * @returns {keyof Changes}
 */
function kindOf({ full, top_k: topK, window }) {
  if (full) return "full";
  if (topK === 0) return "alone";
  return window === undefined ? "topK" : "other";
}

/**
 * Such as "12 heads in full, 3 heads with another top-k"; null without a budget.
 * @param {HeadExceptionPayload[] | undefined} budget
 */
export function budgetWords(budget) {
  const { heads, layers, queryHeads } = countChanges(budget ?? []);
  const parts = /** @type {[number, (count: string | number) => string][]} */ ([
    [layers.full, text.layersFull],
    [layers.alone, text.layersAlone],
    [layers.topK, text.layersTopK],
    [layers.other, text.layersOther],
    [heads.full, text.headsFull],
    [heads.alone, text.headsAlone],
    [heads.topK, text.headsTopK],
    [heads.other, text.headsOther],
    [queryHeads.full, text.queryHeadsFull],
    [queryHeads.alone, text.queryHeadsAlone],
    [queryHeads.topK, text.queryHeadsTopK],
    [queryHeads.other, text.queryHeadsOther],
  ]);
  const words = countWords(parts);
  return words.length > 0 ? words.join(", ") : null;
}

/**
 * What is said of each number that is not 0.
 * @param {[number, (count: string | number) => string][]} parts
 */
export const countWords = (parts) =>
  parts.filter(([count]) => count > 0).map(([count, say]) => say(count === 1 ? 1 : format.count(count)));

/**
 * A setting in words; one that is absent is none, but no layers named means all of them.
 * @param {string} name
 * @param {CentroidChangesPayload["settings"][number][1] | undefined} setting
 */
export function settingInWords(name, setting) {
  if (setting === null || setting === undefined) return name === "layers" ? text.allLayers : text.notSet;
  if (name === "budget") return budgetWords(/** @type {HeadExceptionPayload[]} */ (setting)) ?? text.notSet;
  if (typeof setting === "boolean") return setting ? text.yes : text.no;
  return Array.isArray(setting) ? setting.join(", ") : String(setting);
}
