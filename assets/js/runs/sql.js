// @ts-check
// The SQL box of the Runs tab: examples, a field, the result as a table and as a CSV file.
import { buttonOf, el, newId, scrollRegion } from "../core/dom.js";
import { format } from "../core/format.js";
import { callServer } from "../core/server.js";
import { alertBox, progressBox } from "../core/widgets.js";
import { toCsv } from "./csv.js";
import { sql as text } from "../strings/sql.js";
/** @import { SqlResultPayload } from "../core/payloads.js" */
/** @import { SqlServer } from "../core/types.js" */

export class Box {
  /**
   * @param {HTMLElement} root
   * @param {SqlServer} server
   */
  constructor(root, server) {
    this.server = server;
    this.requestId = 0;
    const id = newId("sql");
    this.field = el("textarea", {
      id,
      class: "fx-input fx-sql-field",
      rows: 7,
      spellcheck: "false",
      autocapitalize: "off",
      "data-testid": "fx-sql",
      onkeydown: (event) => this.key(event),
    });
    this.examples = el("div", { class: "fx-sql-examples", role: "group", "aria-label": text.examples });
    this.help = el("p", { class: "fx-help" });
    this.button = buttonOf(text.run, () => this.run(), { class: "fx-button fx-primary", "data-testid": "fx-sql-run" });
    this.output = el("div", { class: "fx-sql-output", "aria-live": "polite", "data-testid": "fx-sql-output" });
    root.replaceChildren(
      el(
        "section",
        { class: "fx-sql" },
        el("h2", { class: "fx-title" }, text.title),
        this.help,
        el("p", { class: "fx-sql-label" }, text.examples),
        this.examples,
        el("label", { for: id, class: "fx-sql-label" }, text.label),
        this.field,
        el("div", { class: "fx-sql-buttons" }, this.button, el("span", { class: "fx-help fx-fine" }, text.keys)),
        this.output,
      ),
    );
    this.start();
  }

  async start() {
    const answer = await callServer(() => this.server.examples());
    if (answer.error !== undefined) return;
    this.help.textContent = text.help(answer.seconds, format.count(answer.rows));
    this.examples.replaceChildren(
      ...answer.examples.map(([name, sql]) => buttonOf(name, () => this.use(sql), { class: "fx-tag" })),
    );
    const untouched = this.field.value === "" && document.activeElement !== this.field;
    if (untouched) this.field.value = answer.examples[0][1];
  }

  /** @param {string} sql */
  use(sql) {
    this.field.value = sql;
    this.run();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.run();
  }

  async run() {
    const requestId = (this.requestId += 1);
    const waiting = setTimeout(() => this.output.replaceChildren(progressBox(text.running)), 250);
    const answer = await callServer(() => this.server.query(this.field.value));
    clearTimeout(waiting);
    if (requestId !== this.requestId) return;
    this.output.replaceChildren(
      ...(answer.error !== undefined
        ? [alertBox(`${answer.error[0].toUpperCase()}${answer.error.slice(1)}.`)]
        : this.result(answer)),
    );
  }

  /** @param {SqlResultPayload} answer */
  result(answer) {
    if (answer.rows.length === 0) return [el("p", { class: "fx-muted" }, text.none)];
    const words = text.result(format.count(answer.rows.length), format.decimal(answer.seconds, 2));
    const save = buttonOf(text.download, () => this.download(answer), { "data-testid": "fx-sql-csv" });
    /** @param {string | number | boolean | null} value */
    const cell = (value) => {
      if (value === null) return el("td", { class: "fx-muted" }, text.nothing);
      return el(
        "td",
        { class: typeof value === "number" ? "fx-number" : null },
        typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(6))) : String(value),
      );
    };
    const heads = answer.columns.map((column, i) => el("th", { scope: "col", title: answer.types[i] }, column));
    const table = el(
      "table",
      { class: "fx-table" },
      el("thead", {}, el("tr", {}, heads)),
      el(
        "tbody",
        {},
        answer.rows.map((row) => el("tr", {}, row.map(cell))),
      ),
    );
    return [
      el("div", { class: "fx-sql-buttons" }, el("p", {}, words), save),
      answer.truncated
        ? el("p", { class: "fx-sql-cut" }, `${answer.truncated[0].toUpperCase()}${answer.truncated.slice(1)}.`)
        : "",
      scrollRegion("fx-table-scroll fx-sql-table", text.resultLabel, table),
    ];
  }

  /** @param {SqlResultPayload} answer */
  download(answer) {
    const url = URL.createObjectURL(new Blob([toCsv(answer.columns, answer.rows)], { type: "text/csv;charset=utf-8" }));
    const link = el("a", { href: url, download: text.file });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}

/** The SQL box of the Runs tab. */
export const FocusSql = {
  /** @param {HTMLElement} root @param {SqlServer} server */ create: (root, server) => new Box(root, server),
};
