// @ts-check
// Rows as CSV.

/**
 * The whole file in quotes where needed, as spreadsheets expect it.
 * @param {string[]} columns
 * @param {unknown[][]} rows
 * @returns {string}
 */
export const toCsv = (columns, rows) => {
  /** @param {unknown} value */
  const cell = (value) => {
    const plain = value === null ? "" : String(value);
    return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  return `${[columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
};
