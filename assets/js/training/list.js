// @ts-check
// The list of trainings.
import { buttonOf, el, scrollRegion, setText } from "../core/dom.js";
import { format } from "../core/format.js";
import { training as text } from "../strings/training.js";
/** @import { TrainingPayload } from "../core/payloads.js" */
/** @import { App } from "./app.js" */

/**
 * @typedef {{ node: HTMLElement, box: HTMLInputElement, swatch: HTMLElement, chip: HTMLElement,
 *   cells: Record<string, HTMLElement> }} ListRow
 */

const MOST_SHOWN = 4;

export class List {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** By training id. @type {Map<string, ListRow>} */
    this.rows = new Map();
    const heads = Object.entries(text.columns).map(([name, label]) =>
      el("th", { scope: "col", "data-column": name }, label),
    );
    this.body = el("tbody");
    const table = el(
      "table",
      { class: "fx-table fx-run-table", "data-testid": "fx-training-list" },
      el("thead", {}, el("tr", {}, heads)),
      this.body,
    );
    const scroll = scrollRegion("fx-run-scroll", text.listTitle, table);
    this.node = el(
      "section",
      { class: "fx-run-list" },
      el("h3", { class: "fx-subtitle" }, text.listTitle),
      el("p", { class: "fx-help" }, text.listHint),
      scroll,
    );
  }

  /** @param {TrainingPayload[]} runs */
  update(runs) {
    const ids = new Set(runs.map((run) => run.training_id));
    for (const [id, row] of this.rows) {
      if (ids.has(id)) continue;
      row.node.remove();
      this.rows.delete(id);
    }
    runs.forEach((run, i) => {
      const row = this.rows.get(run.training_id) ?? this.makeRow(run);
      this.rows.set(run.training_id, row);
      if (this.body.children[i] !== row.node) this.body.insertBefore(row.node, this.body.children[i] || null);
      this.updateRow(row, run);
    });
  }

  /** @param {TrainingPayload} run */
  makeRow(run) {
    const id = run.training_id;
    const box = el("input", {
      type: "checkbox",
      "aria-label": text.show(run.name),
      onchange: () => this.app.toggle(id),
    });
    const swatch = el("span", { class: "fx-run-swatch", "aria-hidden": "true" });
    const name = buttonOf(run.name, () => this.app.showOnly(id), { class: "fx-run-name", title: text.open(run.name) });
    const date = el("small", { class: "fx-muted" }, text.started(format.date(run.created_at), run.owner));
    const head = el(
      "th",
      { scope: "row", "data-column": "name" },
      el(
        "div",
        { class: "fx-run-choose" },
        el("label", { class: "fx-run-box" }, box, swatch),
        el("span", {}, name, date),
      ),
    );
    const chip = el("span", { class: "fx-status-chip" });
    const columns = Object.keys(text.columns).slice(1);
    const cells = Object.fromEntries(columns.map((column) => [column, el("td", { "data-column": column })]));
    cells.status.append(chip);
    return { node: el("tr", { "data-run": id }, head, Object.values(cells)), box, swatch, chip, cells };
  }

  /**
   * @param {ListRow} given
   * @param {TrainingPayload} run
   */
  updateRow({ node, box, swatch, chip, cells }, run) {
    const shown = this.app.shown.includes(run.training_id);
    box.checked = shown;
    box.disabled = !shown && this.app.shown.length >= MOST_SHOWN;
    swatch.style.background = shown ? this.app.colourOf(run.training_id) : "";
    node.classList.toggle("fx-chosen", run.training_id === this.app.shown[0]);
    setText(chip, text.statuses[run.status]);
    chip.dataset.status = run.status;
    setText(cells.model, /** @type {string} */ (run.model_id.split("/").pop()));
    cells.model.title = run.model_id;
    setText(cells.groups, run.config.num_groups ? String(run.config.num_groups) : text.none);
    setText(cells.steps, text.stepOf(format.count(run.step), format.count(run.steps)));
    setText(cells.loss, run.loss === null ? text.none : format.decimal(run.loss, 3));
    setText(cells.dominance, run.dominance === null ? text.none : format.percent(run.dominance));
    setText(cells.pairs, run.retained_pairs === null ? text.none : format.percent(run.retained_pairs));
  }
}
