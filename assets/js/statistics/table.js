// @ts-check
// A table whose columns sort it.
import { el } from "../core/dom.js";
import { hintButton } from "../core/tooltip.js";

// A table whose columns sort it. `columns`: {name: [label, value of a row, cell of a row, hint or nothing]}.
export class StatTable {
  constructor(app, label, columns, attributes = {}) {
    Object.assign(this, { app, columns, sort: null, rows: [] });
    this.body = el("tbody");
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
    this.node = el("div", { class: "fx-stat-scroll", tabindex: "0", role: "region", "aria-label": label }, this.table);
  }

  heading(name) {
    const [label, , , hint] = this.columns[name];
    const arrow = el("span", { class: "fx-sort-arrow", "aria-hidden": "true" });
    const button = el("button", { type: "button", class: "fx-sort", onclick: () => this.rank(name) }, label, arrow);
    const cell = el(
      "th",
      { scope: "col" },
      el("span", { class: "fx-sort-place" }, button, hint ? hintButton(this.app.tooltip, label, hint) : null),
    );
    this.heads[name] = { cell, arrow };
    return cell;
  }

  rank(name) {
    this.sort = {
      name,
      down: this.sort && this.sort.name === name ? !this.sort.down : name !== Object.keys(this.columns)[0],
    };
    this.draw();
  }

  // `mark` says what is special about a row: {class, current}.
  show(rows, mark = () => ({})) {
    Object.assign(this, { rows, mark });
    this.draw();
  }

  draw() {
    for (const [name, { cell, arrow }] of Object.entries(this.heads)) {
      const here = this.sort !== null && this.sort.name === name;
      if (here) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
      arrow.textContent = here ? (this.sort.down ? "↓" : "↑") : "";
    }
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.layer : undefined;
    this.body.replaceChildren(...this.ranked().map((row) => this.line(row)));
    // The rows are built anew for their marks; the keyboard stays where it was.
    const again = focused === undefined ? null : this.body.querySelector(`[data-layer="${focused}"]`);
    if (again) again.focus({ preventScroll: true });
  }

  ranked() {
    if (this.sort === null) return this.rows;
    const value = this.columns[this.sort.name][1];
    const sign = this.sort.down ? -1 : 1;
    const known = this.rows.filter((row) => value(row) !== null && value(row) !== undefined);
    return [
      ...known.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0)),
      ...this.rows.filter((row) => !known.includes(row)),
    ];
  }

  line(row) {
    const mark = this.mark(row);
    const cells = Object.values(this.columns).map(([, , cell], i) =>
      el(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {}, cell(row)),
    );
    return el("tr", { class: mark.class, "aria-current": mark.current ? "true" : null }, cells);
  }
}
