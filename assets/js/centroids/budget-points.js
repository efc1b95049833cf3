// @ts-check
// Budgets in numbers: what they cost in the worst domain, and how a chart shows them.
import { format } from "../core/format.js";
/** @import { BudgetPointPayload } from "../core/payloads.js" */

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
