// @ts-check
// Small functions over arrays of numbers.

/**
 * The numbers from 0 to count - 1.
 * @param {number} count
 * @returns {number[]}
 */
export const range = (count) => Array.from({ length: count }, (_, i) => i);

/**
 * @param {number[]} values
 * @returns {number}
 */
export const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * NaN for no values.
 * @param {number[]} values
 * @returns {number}
 */
export const mean = (values) => sum(values) / values.length;

/**
 * The middle value, or the mean of the two in the middle.
 * @param {number[]} values
 * @returns {number}
 */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/**
 * The smallest and the largest value; infinities for no values.
 * @param {Iterable<number>} values
 * @returns {[number, number]}
 */
export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/**
 * How many of the first `count` indices pass, when all that pass come before all that fail.
 * @param {number} count
 * @param {(index: number) => boolean} passes
 * @returns {number}
 */
export function lowerBound(count, passes) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (passes(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}
