// @ts-check
// Sinkhorn's balancing of a small matrix of tokens by groups, a division at a time.

/**
 * What stands after some steps. Odd steps divide columns, even ones rows, so N rounds are 2 N steps.
 * @typedef {{ plan: number[][], steps: number }} Balance
 */

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** @param {number[][]} plan */
export const rowSums = (plan) => plan.map(sum);

/** @param {number[][]} plan */
export const columnSums = (plan) => plan[0].map((_, group) => sum(plan.map((row) => row[group])));

/** What every column is to add up to: T / K. @param {number[][]} plan */
export const columnTarget = (plan) => plan.length / plan[0].length;

/**
 * @param {number[][]} scores of tokens (rows) for groups (columns), divided by the temperature
 * @returns {Balance}
 */
export const startBalance = (scores) => ({ plan: scores.map((row) => row.map(Math.exp)), steps: 0 });

/**
 * @param {Balance} balance
 * @returns {Balance}
 */
export function nextBalance({ plan, steps }) {
  const target = columnTarget(plan);
  const [rows, columns] = [rowSums(plan), columnSums(plan)];
  /** @param {number} value @param {number} token @param {number} group */
  const divided = (value, token, group) => (steps % 2 === 0 ? (value * target) / columns[group] : value / rows[token]);
  return { plan: plan.map((row, token) => row.map((value, group) => divided(value, token, group))), steps: steps + 1 };
}

/**
 * The most probable group of a token; of equal ones the first.
 * @param {number[]} row
 */
export const firstGroup = (row) => row.indexOf(Math.max(...row));

/** Share of the tokens that the fullest group has as its own. @param {number[][]} plan */
export function largestGroup(plan) {
  const sizes = plan[0].map((_, group) => plan.filter((row) => firstGroup(row) === group).length);
  return Math.max(...sizes) / plan.length;
}
