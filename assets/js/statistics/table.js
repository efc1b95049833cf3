// @ts-check
// A table whose columns sort it.
import { buttonOf, el, scrollRegion } from "../core/dom.js";
import { hintButton } from "../core/tooltip.js";
/** @import { Tooltip } from "../core/tooltip.js" */
/** @import { Attributes, Child } from "../core/types.js" */

/** What a column is sorted by. @typedef {string | number | null | undefined} Value */
/**
 * By name: the label, the value of a row that sorts, the cell of a row, and a hint.
 * @template Row
 * @typedef {Record<string, [string, (row: Row) => Value, (row: Row) => Child | Child[], string?]>} Columns
 */
/** What is special about a row. @typedef {{ class?: string | null, current?: boolean }} Mark */

/**
 * A table whose columns sort it. `columns`: {name: [label, value of a row, cell of a row, hint or nothing]}.
 * @template Row
 */
export class StatTable {
  /** @type {{ tooltip: Tooltip }} */
  app;
  /** @type {Columns<Row>} */
  columns;
  /** @type {{ name: string, down: boolean } | null} */
  sort;
  /** @type {Row[]} */
  rows;
  /** @type {(row: Row) => Mark} */
  mark;

  /**
   * @param {{ tooltip: Tooltip }} app
   * @param {string} label
   * @param {Columns<Row>} columns
   * @param {Attributes} [attributes]
   */
  constructor(app, label, columns, attributes = {}) {
    Object.assign(this, { app, columns, sort: null, rows: [] });
    this.body = el("tbody");
    /** @type {Record<string, { cell: HTMLElement, arrow: HTMLElement }>} */
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
   * @param {Row[]} rows
   * @param {(row: Row) => Mark} [mark]
   */
  show(rows, mark = () => ({})) {
    Object.assign(this, { rows, mark });
    this.draw();
  }

  draw() {
    for (const [name, { cell, arrow }] of Object.entries(this.heads)) {
      const sort = this.sort?.name === name ? this.sort : null;
      if (sort) cell.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
      arrow.textContent = sort ? (sort.down ? "↓" : "↑") : "";
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
    // The values of a column are all numbers or all texts; `<` compares both.
    const sortValue = /** @type {(row: Row) => number} */ (value);
    /** @param {number} a @param {number} b */
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return [
      ...rows.sort((a, b) => sign * order(sortValue(a), sortValue(b))),
      ...this.rows.filter((row) => !rows.includes(row)),
    ];
  }

  /** @param {Row} row */
  line(row) {
    const mark = this.mark(row);
    const cells = Object.values(this.columns).map(([, , cell], i) =>
      el(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {}, cell(row)),
    );
    return el("tr", { class: mark.class, "aria-current": mark.current ? "true" : null }, cells);
  }
}
