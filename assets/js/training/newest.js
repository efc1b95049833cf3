// @ts-check
// The newest values of the shown trainings as a table.
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { hintButton } from "../core/tooltip.js";
import { training as text } from "../strings/training.js";
import { runSwatch } from "./swatch.js";
/** @import { TrainingPayload } from "../core/payloads.js" */
/** @import { Tooltip } from "../core/tooltip.js" */

const MEAN_OF = 20;

export class Newest {
  /** @param {Tooltip} tooltip */
  constructor(tooltip) {
    /** @type {Record<string, string>} */
    const hints = text.table.hints;
    const heads = Object.entries(text.table.columns).map(([name, label]) => {
      const hint = hints[name];
      return el("th", { scope: "col" }, label, hint ? hintButton(tooltip, label, hint) : null);
    });
    this.body = el("tbody");
    this.table = el(
      "table",
      { class: "fx-table fx-stacked", "data-testid": "fx-training-values" },
      el("caption", {}, text.table.caption(MEAN_OF)),
      el("thead", {}, el("tr", {}, heads)),
      this.body,
    );
    this.node = el("div", { class: "fx-table-wrap fx-newest" }, this.table);
  }

  /**
   * @param {TrainingPayload[]} runs
   * @param {(id: string) => string} colourOf
   */
  update(runs, colourOf) {
    /** @param {number | null} value @param {(value: number) => string} show */
    const some = (value, show) => (value === null ? text.none : show(value));
    /** @param {number} value */
    const percent = (value) => format.percent(value, 1);
    const labels = Object.values(text.table.columns).slice(1);
    const rows = runs.map((run) => {
      const values = [
        format.count(run.step),
        some(run.loss, (value) => format.decimal(value, 3)),
        some(run.perplexity, format.perplexity),
        some(run.dominance, percent),
        some(run.dominance_max, percent),
        some(run.retained_pairs, percent),
        some(run.tokens_per_second, format.count),
      ];
      return el(
        "tr",
        {},
        el("th", { scope: "row" }, runSwatch(colourOf(run.training_id)), run.name),
        values.map((value, i) => el("td", { "data-label": labels[i] }, value)),
      );
    });
    this.body.replaceChildren(...rows);
  }
}
