// @ts-check
// The newest values of the shown trainings as a table.
import { el, setText } from "../core/dom.js";
import { format } from "../core/format.js";
import { hintButton } from "../core/tooltip.js";
import { training as text } from "../strings/training.js";
import { DEPENDS_ON_LOSS } from "./curve.js";
import { runSwatch } from "./swatch.js";
/** @import { TrainingPayload } from "../core/payloads.js" */
/** @import { Tooltip } from "../core/tooltip.js" */

const MEAN_OF = 20;

/** @typedef {keyof typeof text.table.columns} ColumnName */
/**
 * What a column shows of a training, null where that was not measured.
 * @type {Record<Exclude<ColumnName, "run">, (run: TrainingPayload) => string | null>}
 */
const VALUES = {
  step: (run) => format.count(run.step),
  loss: (run) => some(run.loss, (value) => format.decimal(value, 3)),
  perplexity: (run) => some(run.perplexity, format.perplexity),
  layer_error: (run) => some(run.layer_error, (value) => format.decimal(value, 4)),
  dominance: (run) => some(run.dominance, percent),
  worst: (run) => some(run.dominance_max, percent),
  pairs: (run) => some(run.retained_pairs, percent),
  speed: (run) => some(run.tokens_per_second, format.count),
};

const NAMES = /** @type {(keyof typeof VALUES)[]} */ (Object.keys(VALUES));

/** @param {number} value */
const percent = (value) => format.percent(value, 1);

/**
 * @param {number | null} value
 * @param {(value: number) => string} show
 */
function some(value, show) {
  return value === null ? null : show(value);
}

/**
 * What the loss of the shown trainings was measured with.
 * @param {TrainingPayload[]} runs
 */
export function lossHint(runs) {
  /** @type {Map<string, string[]>} */
  const ways = new Map();
  for (const run of runs.filter(({ loss }) => loss !== null)) {
    const how = text.table.attention(run);
    ways.set(how, [...(ways.get(how) ?? []), run.name]);
  }
  const words = [...ways].map(([how, names]) => (ways.size === 1 ? how : text.table.attentionOf(how, names)));
  return text.table.hints.loss(words.join("; "));
}

export class Newest {
  /** @param {Tooltip} tooltip */
  constructor(tooltip) {
    this.lossHint = el("span");
    /** @type {Record<string, string | HTMLElement>} */
    const hints = { ...text.table.hints, loss: this.lossHint };
    /** @type {Record<string, HTMLElement>} */
    this.heads = {};
    for (const [name, label] of Object.entries(text.table.columns)) {
      const hint = hints[name];
      this.heads[name] = el("th", { scope: "col" }, label, hint ? hintButton(tooltip, label, hint) : null);
    }
    this.body = el("tbody");
    this.table = el(
      "table",
      { class: "fx-table fx-stacked", "data-testid": "fx-training-values" },
      el("caption", {}, text.table.caption(MEAN_OF)),
      el("thead", {}, el("tr", {}, Object.values(this.heads))),
      this.body,
    );
    this.node = el("div", { class: "fx-table-wrap fx-newest" }, this.table);
  }

  /**
   * @param {TrainingPayload[]} runs
   * @param {(id: string) => string} colourOf
   */
  update(runs, colourOf) {
    /** @param {keyof typeof VALUES} name */
    const measured = (name) => runs.some((run) => VALUES[name](run) !== null);
    const losses = NAMES.filter((name) => DEPENDS_ON_LOSS.includes(name));
    const missing = losses.some(measured) ? losses.filter((name) => !measured(name)) : [];
    const shown = NAMES.filter((name) => !missing.includes(name));
    for (const name of NAMES) this.heads[name].hidden = !shown.includes(name);
    setText(this.lossHint, lossHint(runs));
    const rows = runs.map((run) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, runSwatch(colourOf(run.training_id)), run.name),
        shown.map((name) => el("td", { "data-label": text.table.columns[name] }, VALUES[name](run) ?? text.none)),
      ),
    );
    this.body.replaceChildren(...rows);
  }
}
