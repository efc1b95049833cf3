// @ts-check
// Causes of pairs: their swatches, their counts as rows of a tooltip, and the most frequent one.
import { sum } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { near } from "../core/pair-rule.js";
import { tooltipHead, tooltipRow } from "../core/tooltip.js";
import { sparsity as text } from "../strings/sparsity.js";
/** @import { Run } from "../core/run.js" */
/** @import { Cause } from "../core/types.js" */

export const CAUSES = /** @type {Cause[]} */ (Object.keys(text.causes));

/**
 * What each cause means for some heads of a layer.
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} part
 * @returns {Record<Cause, string>}
 */
export function causeHints(run, layerIndex, part) {
  const { sliding_window: sliding, parts } = run.layers[layerIndex];
  const { window, full } = parts[part];
  const { num_sinks: sinks, window_growth: growth } = run.config;
  const [first, last] = [0, run.numTokens - 1].map((query) =>
    format.count(Math.min(near(window, query, growth), (sliding ?? Infinity) - 1)),
  );
  const words = text.windows(first, last);
  return full ? text.fullHints(words) : text.causeHints(words, sinks, sliding);
}

/** @param {number[]} counts */
export const mainCause = (counts) => counts.indexOf(Math.max(...counts));

/** @param {Cause} cause */
export const causeSwatch = (cause) => el("span", { class: `fx-cause fx-cause-${cause}`, "aria-hidden": "true" });

/**
 * @param {string} title
 * @param {Cause[]} causes
 * @param {number[]} counts
 */
export function countRows(title, causes, counts) {
  const total = sum(counts);
  return [
    tooltipHead(title),
    ...causes.map((cause, i) =>
      tooltipRow(
        [causeSwatch(cause), text.causes[cause]],
        text.pairs(format.count(counts[i]), format.percent(counts[i] / total, 1)),
      ),
    ),
  ];
}

/**
 * @param {Run} run
 * @param {number} index
 */
export function describeLayer(run, index) {
  const { pairs } = run.layers[index];
  return countRows(
    text.layerTitle(run.layerIds[index]),
    CAUSES,
    CAUSES.map((cause) => pairs[cause]),
  );
}
