// @ts-check
// Rows as CSV.

// The whole file in quotes where needed, as spreadsheets expect it.
export const toCsv = (columns, rows) => {
  const cell = (value) => {
    const plain = value === null ? "" : String(value);
    return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  return `${[columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
};
