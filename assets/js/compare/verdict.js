// @ts-check
// The comparison of Focus with full attention in sentences and as a table.
import { nats } from "./cells.js";
import { FEWEST_REPEATS } from "./repeats.js";
import { el } from "../core/dom.js";
import { format, memorySize } from "../core/format.js";
import { interval95, sideOfZero } from "../core/interval.js";
import { hintButton } from "../core/tooltip.js";
import { tableOf } from "../core/widgets.js";
import { overview as text } from "../strings/compare.js";
/** @import { QualityPayload, TimingPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { Tooltip } from "../core/tooltip.js" */

/** @param {Run} run */
export function verdict(run) {
  const retained = format.percent(run.meanKept());
  const setting = text.setting(retained, format.percent(run.meanDominance()));
  const { device, dtype, backend } = run.info;
  return [speedSentence(run), qualitySentence(run.quality), setting, text.measuredOn(device, dtype, backend)].filter(
    (sentence) => sentence !== null,
  );
}

/**
 * Which is faster, where the repeats tell.
 * @param {Run} run
 */
export function speedSentence(run) {
  const ratio = run.timeRatio("end_to_end");
  const full = run.timing("full", "end_to_end");
  const focus = run.timing("focus", "end_to_end");
  if (ratio === null || full === null || focus === null) return text.noTiming;
  const tokens = format.count(focus.sequence_length);
  if (Math.min(full.repeats, focus.repeats) < FEWEST_REPEATS)
    return text.tooFew(format.ratio(ratio), tokens, Math.min(full.repeats, focus.repeats));
  const overlap = full.low <= focus.high && focus.low <= full.high;
  if (overlap) return text.sameSpeed(format.ratio(ratio), tokens);
  return ratio > 1
    ? text.slower(format.ratio(ratio), tokens)
    : text.faster(format.ratio(ratio), format.ratio(1 / ratio), tokens);
}

/**
 * Which predicts better, where the interval tells; null where nothing was scored.
 * @param {QualityPayload | null} quality
 */
export function qualitySentence(quality) {
  if (!quality) return null;
  const { delta_mean: delta, delta_low: low, delta_high: high } = quality;
  const side = sideOfZero(low, high);
  const sentence = side > 0 ? text.worse : side < 0 ? text.better : text.sameQuality;
  return sentence(nats(delta), interval95(low, high, nats));
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
export function comparisonTable(run, tooltip) {
  const columns = Object.entries(text.columns).map(([name, label]) => {
    const hint = text.columnHints[name];
    return hint ? el("span", { class: "fx-column" }, label, hintButton(tooltip, label, hint)) : label;
  });
  const table = tableOf(
    columns,
    ["full", "focus"].map((mode) => modeRow(run, /** @type {"focus" | "full"} */ (mode))),
    { "aria-label": text.tableCaption },
  );
  table.classList.add("fx-stacked");
  const labels = Object.values(text.columns);
  for (const row of table.tBodies[0].rows)
    [...row.cells].forEach((cell, i) => cell.setAttribute("data-label", labels[i]));
  return table;
}

/**
 * @param {Run} run
 * @param {"full" | "focus"} mode
 */
function modeRow(run, mode) {
  const ratio = mode === "full" ? 1 : run.timeRatio("end_to_end");
  return [
    text.modes[mode],
    run.quality ? format.perplexity(run.quality[mode]) : text.none,
    run.quality ? format.count(run.quality.scored) : text.none,
    ...["end_to_end", "attention", "routing"].map((stage) => timingCell(run.timing(mode, stage))),
    ratio === null ? text.none : format.ratio(ratio),
    memory(run, mode),
  ];
}

/**
 * @param {Run} run
 * @param {string} mode
 */
function memory(run, mode) {
  const peak = Math.max(
    0,
    ...run.timings.filter((timing) => timing.mode === mode).map((timing) => timing.peak_memory_bytes || 0),
  );
  return peak === 0 ? el("span", { class: "fx-muted" }, text.notMeasured) : memorySize(peak);
}

/** @param {TimingPayload | null} timing */
function timingCell(timing) {
  if (!timing) return text.none;
  const interval = text.interval(format.msNumber(timing.low), format.msNumber(timing.high), timing.repeats);
  return el(
    "span",
    {},
    el("span", { class: "fx-number" }, format.ms(timing.median)),
    el("span", { class: "fx-interval" }, interval),
  );
}
