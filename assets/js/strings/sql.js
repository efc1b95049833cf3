// @ts-check
// Labels and sentences of the SQL box.
import { counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const sql = {
  title: "Ask the database",
  help: (seconds, rows) =>
    `Your own SQL (DuckDB) over everything the page knows. It is only read: one SELECT, at most ${seconds} seconds ` +
    `and ${rows} rows, no files and no other database. Deleted runs are in it until they are removed for good.`,
  label: "SQL query",
  examples: "Examples",
  run: "Run query",
  keys: "Ctrl or ⌘ and Enter runs it, too.",
  running: "Asking the database…",
  result: (rows, seconds) => `${counted(rows, "row")} in ${seconds} s`,
  none: "The query gave no rows.",
  download: "Download CSV",
  resultLabel: "Result of the query",
  nothing: "NULL",
  file: "focus-explorer-query.csv",
};
