// @ts-check
// Budgets in numbers and words: which heads they change, and what they cost in the worst domain.
import { format } from "../core/format.js";
import { centroids as text } from "../strings/centroids.js";
/** @import { BudgetPointPayload, HeadExceptionPayload } from "../core/payloads.js" */

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
 * The domain in which a budget costs most, and how much.
 * @param {BudgetPointPayload} point
 * @returns {[string, number]}
 */
export const worstDomain = ({ excess }) =>
  Object.entries(excess).reduce((worst, entry) => (entry[1] > worst[1] ? entry : worst));

const WORST = 3; // domains named where all are too many

/**
 * What a budget costs by domain; where there are too many to name, in those in which it costs most.
 * @param {BudgetPointPayload} point
 * @param {number} most that can be named
 * @returns {[string, number][]}
 */
export function domainsToName({ excess }, most) {
  const all = Object.entries(excess);
  return all.length <= most ? all : [...all].sort((one, other) => other[1] - one[1]).slice(0, WORST);
}

/** @param {BudgetPointPayload} point */
export const isTuned = (point) => point.budget.length > 0;

const FAR_ABOVE = 1.5; // times what the file loses with and without its budget, and the target

/**
 * Points that a chart shows, and those that lose so much more that beside them nothing else could be told apart.
 * @param {BudgetPointPayload[]} points
 * @param {number} target loss; 0 where the target is another
 * @returns {{ near: BudgetPointPayload[], far: BudgetPointPayload[] }}
 */
export function nearAndFar(points, target) {
  const lost = (/** @type {BudgetPointPayload} */ point) => worstDomain(point)[1];
  const always = (/** @type {BudgetPointPayload} */ point) => point.own || !isTuned(point);
  const known = points.filter(always).map(lost);
  if (known.length === 0) return { near: points, far: [] };
  const most = FAR_ABOVE * Math.max(target, ...known);
  const near = points.filter((point) => always(point) || lost(point) <= most);
  return near.length < 2 ? { near: points, far: [] } : { near, far: points.filter((point) => !near.includes(point)) };
}

/** @param {number} change */
export const percentChange = (change) => `${format.signed(change * 100, Math.abs(change) < 0.1 ? 2 : 1)}\u00a0%`;

/** @param {BudgetPointPayload[]} points */
export const domainsOf = (points) => Object.keys(points[0].excess);

/**
 * As many digits as tell the shares of the points apart, three at most.
 * @param {BudgetPointPayload[]} points
 */
export function shareDigits(points) {
  const different = (/** @type {number} */ digits) =>
    new Set(points.map((point) => format.percent(point.retained_pairs, digits))).size === points.length;
  return [0, 1, 2].find(different) ?? 3;
}
