// @ts-check
// Every group of every layer in one table, ranked by any column and filtered in the browser.
import { addressOf } from "../core/address.js";
import { range } from "../core/arrays.js";
import { buttonOf, el, scrollRegion } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupNames } from "../core/group-names.js";
import { groupLabel } from "../core/labels.js";
import { selectGroup, selectedPerGroup } from "../core/selection.js";
import { hintButton } from "../core/tooltip.js";
import { groupChip } from "../core/widgets.js";
import { shortClass } from "../core/word-classes.js";
import { COLUMNS, selectedCell } from "./finder-columns.js";
import { aboveWords, fits, ranked, rowsOf } from "./finder-rows.js";
import { groupFlags } from "./flags.js";
import { common } from "../strings/common.js";
import { groups as groupsText } from "../strings/groups.js";
/** @import { GroupNamesPayload, GroupsPayload } from "../core/payloads.js" */
/** @import { UiEvent } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { Filter, Row } from "./finder-rows.js" */
/** @import { ColumnName } from "./finder-columns.js" */
/** @import { Selection } from "../core/selection.js" */

const text = groupsText.finder;

const FIRST_ROWS = 50;

const COLUMN_NAMES = /** @type {ColumnName[]} */ (Object.keys(COLUMNS));

/** @type {ColumnName} */
const BEST = "purity"; // ranked by it at first

const OPEN = { layer: "all", class: "all", only: "all", token: "" };

export class GroupFinder {
  /** @type {HTMLParagraphElement} */
  count;
  /** @type {HTMLButtonElement} */
  measure;
  /** @type {HTMLParagraphElement} */
  aboveLine;
  /** @type {HTMLDivElement} */
  filters;
  /** @type {HTMLTableRowElement} */
  head;
  /** @type {HTMLTableSectionElement} */
  body;
  /** @type {HTMLButtonElement} */
  more;
  /** @type {HTMLTableElement} */
  table;
  /** @type {HTMLElement} */
  node;
  /** @type {Filter} */
  filter;
  /** @type {number} */
  limit;
  /** @type {GroupsPayload} */
  data;
  /** @type {Row[]} */
  rows;
  /** @type {Selection | null} */
  counted;
  /** @type {GroupNamesPayload | undefined} */
  names;
  /** @type {Run} */
  run;
  /** @type {Record<string, { cell: HTMLElement, arrow: HTMLElement }>} */
  headings;
  /** What is on the screen. @type {{ row: Row, button: HTMLElement, selected: HTMLElement, node: HTMLElement }[]} */
  lines;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** The address of the first run. @type {URLSearchParams | null} */
    this.address = addressOf("groups");
    /** @type {{ column: ColumnName, down: boolean }} */
    this.sort = { column: BEST, down: true };
    this.build();
    this.reset();
  }

  build() {
    this.count = el("p", { class: "fx-finder-count", role: "status" });
    this.measure = buttonOf(text.measure, () => this.goMeasure(), { hidden: true });
    this.aboveLine = el("p", { class: "fx-help" });
    this.filters = el("div", { class: "fx-toolbar fx-finder-filters" });
    this.head = el("tr");
    this.body = el("tbody");
    this.more = buttonOf(null, () => this.showAll());
    this.table = el(
      "table",
      { class: "fx-table fx-finder", "aria-label": text.tableLabel, "data-testid": "fx-finder" },
      el("thead", {}, this.head),
      this.body,
    );
    this.node = el(
      "section",
      {},
      el("h3", { class: "fx-subtitle" }, text.title),
      el("p", { class: "fx-help" }, text.help),
      this.filters,
      el("div", { class: "fx-finder-line" }, this.count, this.measure),
      scrollRegion("fx-finder-scroll", text.rows, this.table),
      this.more,
      this.aboveLine,
    );
  }

  reset() {
    this.filter = { ...OPEN };
    this.limit = FIRST_ROWS;
  }

  /** @param {GroupsPayload} data */
  update(data) {
    const names = groupNames(this.app.run);
    if (this.data !== data || this.names !== names) {
      this.data = data;
      this.names = names;
      this.rows = rowsOf(this.app.run, data);
      this.counted = null;
      if (this.run !== this.app.run) this.openRun();
      this.drawFilters();
      this.drawHead();
      this.aboveLine.textContent = aboveWords(this.rows, data);
      this.draw();
    } else this.selectionChanged(); // the rows of another layer are the same
  }

  openRun() {
    this.run = this.app.run;
    this.reset();
    if (this.address) this.restore(this.address);
    this.address = null;
    this.app.writeAddress(); // it was written before the answer that the filters need came
  }

  /**
   * As the address has it.
   * @param {URLSearchParams} address
   */
  restore(address) {
    const { data, run } = this;
    const layer = run.layerIds.indexOf(Number(address.get("of") ?? NaN));
    if (layer >= 0) this.filter.layer = `l${layer}`;
    const [kind, only, rank] = ["class", "only", "rank"].map((name) => address.get(name) ?? "");
    if (data.class_names.includes(kind)) this.filter.class = kind;
    if (Object.hasOwn(text.filters, only)) this.filter.only = only;
    this.filter.token = address.get("token") || "";
    if (Object.hasOwn(COLUMNS, rank))
      this.sort = { column: /** @type {ColumnName} */ (rank), down: !address.has("up") };
  }

  get parameters() {
    const { filter, sort, run } = this;
    /** @param {keyof Filter} name */
    const other = (name) => (filter[name] === OPEN[name] ? null : filter[name]);
    return {
      of: run && filter.layer !== OPEN.layer ? run.layerIds[Number(filter.layer.slice(1))] : null,
      class: other("class"),
      only: other("only"),
      token: other("token"),
      rank: sort.column === BEST && sort.down ? null : sort.column,
      up: sort.down ? null : "1",
    };
  }

  drawFilters() {
    const { run } = this.app;
    const used = this.data.class_names.filter((name) => this.rows.some((row) => row.className === name));
    const layers = {
      all: text.allLayers,
      ...Object.fromEntries(run.layerIds.map((layer, index) => [`l${index}`, layer])),
    };
    const classes = { all: text.allClasses, ...Object.fromEntries(used.map((name) => [name, shortClass(name)])) };
    /** @param {UiEvent<Event>} event */
    const typed = (event) => this.change("token", event.target.value);
    const search = el(
      "label",
      { class: "fx-select" },
      text.search,
      el("input", {
        type: "search",
        class: "fx-finder-search",
        title: text.searchHint,
        placeholder: text.searchPlaceholder,
        value: this.filter.token,
        oninput: typed,
      }),
    );
    this.filters.replaceChildren(
      this.select("layer", text.layer, layers),
      this.select("class", text.class, classes),
      this.select("only", text.only, text.filters),
      search,
    );
  }

  /**
   * @param {keyof Filter} name
   * @param {string} label
   * @param {Record<string, string | number>} options
   */
  select(name, label, options) {
    /** @param {UiEvent<Event>} event */
    const changed = (event) => this.change(name, event.target.value);
    return el(
      "label",
      { class: "fx-select" },
      label,
      el(
        "select",
        { "data-filter": name, onchange: changed },
        Object.entries(options).map(([value, words]) =>
          el("option", { value, selected: value === this.filter[name] }, words),
        ),
      ),
    );
  }

  /**
   * @param {keyof Filter} name
   * @param {string} value
   */
  change(name, value) {
    this.filter[name] = value;
    this.limit = FIRST_ROWS;
    this.draw();
    this.app.writeAddress();
  }

  showAll() {
    this.limit = Infinity;
    this.draw();
  }

  goMeasure() {
    this.app.openView("sparsity");
    this.app.views.sparsity.attention.node.scrollIntoView({ block: "start" });
  }

  /** @param {ColumnName} name */
  hint(name) {
    const [, hint] = text.columns[name];
    if (name === "class" || name === "purity") return `${hint} ${common.wordClassHint}`;
    if (name !== "mass") return hint;
    const { attention_tokens: tokens, attention_heads: heads } = this.data;
    if (tokens === null) return `${hint} ${text.massMissing}`;
    return `${hint} ${text.massMeasured(format.count(/** @type {number} */ (heads)), format.count(tokens))}`;
  }

  drawHead() {
    this.headings = {};
    this.measure.hidden = this.data.attention_tokens !== null;
    this.head.replaceChildren(
      ...COLUMN_NAMES.map((name) => {
        const [label] = text.columns[name];
        const arrow = el("span", { class: "fx-sort-arrow", "aria-hidden": "true" });
        const button = buttonOf([label, arrow], () => this.rank(name), { class: "fx-sort" });
        const cell = el(
          "th",
          { scope: "col" },
          el("span", { class: "fx-sort-place" }, button, hintButton(this.app.tooltip, label, this.hint(name))),
        );
        this.headings[name] = { cell, arrow };
        return cell;
      }),
    );
  }

  /** @param {ColumnName} column */
  rank(column) {
    this.sort = { column, down: this.sort.column === column ? !this.sort.down : true };
    this.draw();
    this.app.writeAddress();
  }

  draw() {
    this.countSelected();
    for (const [name, { cell, arrow }] of Object.entries(this.headings)) {
      const sorted = name === this.sort.column;
      const { lettered = false } = COLUMNS[/** @type {ColumnName} */ (name)];
      const down = this.sort.down !== lettered; // from A on is ascending
      if (sorted) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
      arrow.textContent = sorted ? (down ? "↓" : "↑") : "";
    }
    const matches = ranked(
      this.rows.filter((row) => fits(row, this.filter)),
      COLUMNS[this.sort.column].value,
      this.sort.down,
    );
    this.lines = matches.slice(0, this.limit).map((row) => this.line(row));
    this.body.replaceChildren(...(matches.length > 0 ? this.lines.map(({ node }) => node) : [this.nothing()]));
    this.count.textContent = text.matches(format.count(matches.length), format.count(this.rows.length));
    this.more.hidden = matches.length <= this.limit;
    this.more.textContent = text.more(format.count(matches.length));
    this.markOpen();
  }

  nothing() {
    const reset = () => {
      this.reset();
      this.drawFilters();
      this.draw();
      this.app.writeAddress();
    };
    return el(
      "tr",
      {},
      el(
        "td",
        { colspan: COLUMN_NAMES.length },
        el(
          "div",
          { class: "fx-finder-nothing" },
          el("p", { class: "fx-muted" }, text.nothing),
          buttonOf(text.reset, reset),
        ),
      ),
    );
  }

  /** @param {Row} row */
  line(row) {
    const choose = () => this.choose(row);
    const button = el(
      "button",
      { type: "button", class: "fx-finder-open", "aria-label": text.open(groupLabel(row.group), row.layer) },
      groupChip(row.group),
      el("span", {}, groupsText.flow.column(row.layer)),
      row.name ? el("span", { class: "fx-group-title" }, row.name) : null,
      groupFlags(row),
    );
    const cells = Object.fromEntries(
      COLUMN_NAMES.slice(1).map((name) => [name, el("td", { "data-column": name }, COLUMNS[name].cell?.(row))]),
    );
    // The button's click reaches the row too, so the row alone listens.
    return {
      row,
      button,
      selected: cells.selected,
      node: el(
        "tr",
        { "data-layer": row.layer, "data-group": row.group, onclick: choose },
        el("th", { scope: "row" }, button),
        Object.values(cells),
      ),
    };
  }

  /** @param {Row} row */
  choose(row) {
    const { app } = this;
    app.setLayer(row.layerIndex);
    app.select(selectGroup(app.run, row.layerIndex, row.group));
    const line = this.lines.find((other) => other.row === row);
    if (line) line.button.focus({ preventScroll: true });
  }

  selectionChanged() {
    if (this.sort.column === "selected") {
      this.draw();
      return;
    }
    this.countSelected();
    for (const { row, selected } of this.lines) selected.replaceChildren(...[selectedCell(row)].flat());
    this.markOpen();
  }

  // Of every row, shown or not: any of them may come first when ranked by it.
  countSelected() {
    const { run, selection } = this.app;
    if (this.counted === selection && this.counted !== null) return;
    this.counted = selection;
    const hits =
      selection === null ? null : range(run.numLayers).map((index) => selectedPerGroup(run, index, selection));
    for (const row of this.rows) {
      row.hits = hits === null ? 0 : hits[row.layerIndex][row.group];
      row.selected = hits === null || row.tokens === 0 ? null : row.hits / row.tokens;
    }
  }

  markOpen() {
    const { selection } = this.app;
    const origin = selection && selection.origin.kind === "group" ? selection.origin : null;
    for (const { row, node } of this.lines) {
      const selected = origin !== null && row.layer === origin.layer && row.group === origin.group;
      if (selected) node.setAttribute("aria-current", "true");
      else node.removeAttribute("aria-current");
    }
  }
}
