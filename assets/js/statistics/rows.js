// @ts-check
// Columns of a statistics payload as row objects.

/**
 * Columns of numbers → objects.
 * @template {object} T
 * @param {T} columns
 * @returns {{ [K in keyof T]: T[K] extends (infer V)[] ? V : never }[]}
 */
export const statRows = (columns) => {
  /** @type {[string, any[]][]} */
  const named = Object.entries(/** @type {any} */ (columns));
  const count = named.length > 0 ? named[0][1].length : 0;
  const row = (/** @type {number} */ i) => Object.fromEntries(named.map(([name, values]) => [name, values[i]]));
  return /** @type {any} */ (Array.from({ length: count }, (_, i) => row(i)));
};
