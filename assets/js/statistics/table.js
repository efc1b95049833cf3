// @ts-check
// A table whose columns sort it.
import { buttonOf, el, scrollRegion } from "../core/dom.js";
import { hintButton } from "../core/tooltip.js";
/** @import { Tooltip } from "../core/tooltip.js" */
/** @import { Attributes } from "../core/types.js" */

/** By name: the label, the value of a row that sorts, the cell of a row, and a hint.
 * @typedef {Record<string, [string, (row: any) => any, (row: any) => any, string?]>} Columns */
/** What is special about a row. @typedef {{ class?: string | null, current?: boolean }} Mark */

// A table whose columns sort it. `columns`: {name: [label, value of a row, cell of a row, hint or nothing]}.
export class StatTable {
  /** @type {any} */
  app;
  /** @type {Columns} */
  columns;
  /** @type {any} */
  sort;
  /** @type {any[]} */
  rows;
  /** @type {((row: any) => Mark) | undefined} */
  mark;

  /**
   * @param {{ tooltip: Tooltip }} app
   * @param {string} label
   * @param {Columns} columns
   * @param {Attributes} [attributes]
   */
  constructor(app, label, columns, attributes = {}) {
    Object.assign(this, { app, columns, sort: null, rows: [] });
    this.body = el("tbody");
    /** @type {Record<string, any>} */
    this.heads = {};
    const head = el(
      "tr",
      {},
      Object.keys(columns).map((name) => this.heading(name)),
    );
    this.table = el(
      "table",
      { class: "fx-table fx-stat-table", "aria-label": label, ...attributes },
      el("thead", {}, head),
      this.body,
    );
    this.node = scrollRegion("fx-stat-scroll", label, this.table);
  }

  /** @param {string} name */
  heading(name) {
    const [label, , , hint] = this.columns[name];
    const arrow = el("span", { class: "fx-sort-arrow", "aria-hidden": "true" });
    const button = buttonOf([label, arrow], () => this.rank(name), { class: "fx-sort" });
    const cell = el(
      "th",
      { scope: "col" },
      el("span", { class: "fx-sort-place" }, button, hint ? hintButton(this.app.tooltip, label, hint) : null),
    );
    this.heads[name] = { cell, arrow };
    return cell;
  }

  /** @param {string} name */
  rank(name) {
    this.sort = {
      name,
      down: this.sort && this.sort.name === name ? !this.sort.down : name !== Object.keys(this.columns)[0],
    };
    this.draw();
  }

  /**
   * `mark` says what is special about a row: {class, current}.
   * @param {any[]} rows
   * @param {(row: any) => Mark} [mark]
   */
  show(rows, mark = () => ({})) {
    Object.assign(this, { rows, mark });
    this.draw();
  }

  draw() {
    for (const [name, { cell, arrow }] of Object.entries(this.heads)) {
      const sorted = this.sort !== null && this.sort.name === name;
      if (sorted) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
      arrow.textContent = sorted ? (this.sort.down ? "↓" : "↑") : "";
    }
    const focused = this.body.contains(document.activeElement)
      ? /** @type {HTMLElement} */ (document.activeElement).dataset.layer
      : undefined;
    this.body.replaceChildren(...this.ranked().map((row) => this.line(row)));
    // The rows are built anew for their marks; the keyboard stays where it was.
    const previous = focused === undefined ? null : this.body.querySelector(`[data-layer="${focused}"]`);
    if (previous) previous.focus({ preventScroll: true });
  }

  ranked() {
    if (this.sort === null) return this.rows;
    const value = this.columns[this.sort.name][1];
    const sign = this.sort.down ? -1 : 1;
    const rows = this.rows.filter((row) => value(row) !== null && value(row) !== undefined);
    return [
      ...rows.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0)),
      ...this.rows.filter((row) => !rows.includes(row)),
    ];
  }

  /** @param {any} row */
  line(row) {
    const mark = /** @type {(row: any) => Mark} */ (this.mark)(row);
    const cells = Object.values(this.columns).map(([, , cell], i) =>
      el(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {}, cell(row)),
    );
    return el("tr", { class: mark.class, "aria-current": mark.current ? "true" : null }, cells);
  }
}
