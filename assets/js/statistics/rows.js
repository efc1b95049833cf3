// @ts-check
// Columns of a statistics payload as row objects.

/**
 * A row of a table that comes as columns.
 * @template {object} T
 * @typedef {{ [K in keyof T]: T[K] extends (infer V)[] ? V : never }} RowOf
 */

/**
 * The fields of a row that hold a number, or null.
 * @template {object} Row
 * @typedef {{ [K in keyof Row]: Row[K] extends number | null ? K : never }[keyof Row]} NumberKey
 */

/**
 * Columns of numbers → objects.
 * @template {object} T
 * @param {T} columns
 * @returns {RowOf<T>[]}
 */
export const statRows = (columns) => {
  const named = /** @type {[string, unknown[]][]} */ (Object.entries(columns));
  const count = named.length > 0 ? named[0][1].length : 0;
  const row = (/** @type {number} */ i) => Object.fromEntries(named.map(([name, values]) => [name, values[i]]));
  return /** @type {RowOf<T>[]} */ (Array.from({ length: count }, (_, i) => row(i)));
};
