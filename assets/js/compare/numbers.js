// @ts-check
// Two stored runs: their numbers and settings side by side.
import { el, scrollRegion } from "../core/dom.js";
import { format, memorySize } from "../core/format.js";
import { settingInWords } from "../core/setting-words.js";
import { hintButton } from "../core/tooltip.js";
import { tableOf } from "../core/widgets.js";
import { withAdded } from "../strings/common.js";
import { numbers as text } from "../strings/compare.js";
/** @import { RunNumbersPayload, RunSummaryPayload } from "../core/payloads.js" */
/** @import { Child } from "../core/types.js" */
/** @import { Tooltip } from "../core/tooltip.js" */

/**
 * `answer` is that to "compare_numbers".
 * @param {RunNumbersPayload} answer
 * @param {Tooltip} tooltip
 * @param {boolean} sameText their tokens are the same, so that their numbers compare as they are
 */
export const runNumbers = (answer, tooltip, sameText) => {
  const sides = [answer.first, answer.second];
  const rows = Object.entries(ROWS).map(([name, value]) => [
    label(text.rows[name], text.hints[name], tooltip),
    ...sides.map((side) => value(side) ?? none()),
  ]);
  const settings = Object.entries(answer.settings_that_differ).map(([name, values]) => {
    return [
      el("span", { class: "fx-column" }, answer.titles[name], el("span", { class: "fx-own-mark" }, text.differ)),
      ...values.map((value) => settingInWords(name, value)),
    ];
  });
  const table = tableOf(text.columns, [...rows, ...settings], {
    "aria-label": text.caption,
    "data-testid": "fx-run-numbers",
  });
  const tokens = sides.map((side) => format.count(side.num_tokens));
  return el(
    "div",
    {},
    sameText
      ? null
      : el(
          "div",
          { class: "fx-verdict" },
          el("p", {}, text.differentTexts(.../** @type {[string, string]} */ (tokens))),
          el("p", {}, text.caution),
        ),
    scrollRegion("fx-table-wrap fx-grid-wrap", text.caption, table),
    settings.length === 0 ? el("p", { class: "fx-muted" }, text.sameSettings) : null,
  );
};

/** @type {Record<string, (side: RunSummaryPayload) => Child>} */
const ROWS = {
  text: (side) => side.name || side.title,
  run: (side) => side.run_id,
  tokens: (side) => withAdded(format.count(side.num_tokens), side.added_tokens),
  model: (side) => side.model,
  centroids: (side) => side.centroids,
  full: (side) => format.perplexity(side.perplexity.full),
  focus: (side) => format.perplexity(side.perplexity.focus),
  loss: (side) => text.nats(format.signed(Math.log(side.perplexity.focus / side.perplexity.full), 3)),
  pairs: (side) => format.percent(side.retained_pairs, 1),
  far: (side) => (side.distant_pairs_kept === null ? null : format.percent(side.distant_pairs_kept, 1)),
  largest: (side) => format.percent(side.dominance, 1),
  endToEnd: (side) => both(side, "end_to_end"),
  attention: (side) => both(side, "attention"),
  routing: (side) => median(side, "routing", "focus"),
  memory: (side) => memory(side),
  device: (side) => `${side.device}, ${side.dtype}, ${side.backend}`,
};

/**
 * @param {RunSummaryPayload} side
 * @param {string} stage
 * @param {"full" | "focus"} mode
 */
function median(side, stage, mode) {
  const timing = (side.milliseconds[stage] || {})[mode];
  return timing ? format.ms(timing.median) : null;
}

/**
 * @param {RunSummaryPayload} side
 * @param {string} stage
 */
function both(side, stage) {
  const [full, focus] = ["full", "focus"].map((mode) => median(side, stage, /** @type {"focus" | "full"} */ (mode)));
  return full === null || focus === null ? null : text.both(full, focus);
}

/** @param {RunSummaryPayload} side */
function memory(side) {
  const peaks = Object.values(side.milliseconds).flatMap((stage) => Object.values(stage.peak_memory_bytes));
  const peak = Math.max(0, .../** @type {(number)[]} */ (peaks));
  return peak === 0 ? null : memorySize(peak);
}

/**
 * @param {string} words
 * @param {string | undefined} hint
 * @param {Tooltip} tooltip
 */
function label(words, hint, tooltip) {
  return hint ? el("span", { class: "fx-column" }, words, hintButton(tooltip, words, hint)) : words;
}

function none() {
  return el("span", { class: "fx-muted" }, text.none);
}
