// @ts-check
// What a setting costs, from settings that were measured on the run's text: measured, or between two that were.
/** @import { ConfigPayload, GridCellPayload, QualityPayload } from "../core/payloads.js" */

/**
 * A measured setting: how much worse it predicts than full attention, in nats a token, with its 95 % interval; one
 * scored token has none.
 * @typedef {object} MeasuredPoint
 * @property {number} topK
 * @property {number} window
 * @property {number} delta
 * @property {number | null} low
 * @property {number | null} high
 * @property {number} retained share of pairs kept, by the pass itself
 */

/**
 * @typedef {{ kind: "measured", point: MeasuredPoint }
 *   | { kind: "interpolated", delta: number, between: [MeasuredPoint, MeasuredPoint] }
 *   | { kind: "unknown" }} Cost
 */

/**
 * Points of the run's own centroids, sinks and assignment, the run itself among them.
 * @param {{ config: ConfigPayload, quality: QualityPayload, retained: number }} run
 * @param {GridCellPayload[]} cells
 * @returns {MeasuredPoint[]}
 */
export function measuredPoints({ config, quality, retained }, cells) {
  const own = {
    topK: config.top_k,
    window: config.window,
    delta: quality.delta_mean,
    low: quality.delta_low,
    high: quality.delta_high,
    retained,
  };
  const others = cells
    .filter((cell) => cell.kind === "focus")
    .filter((cell) => cell.num_sinks === config.num_sinks && cell.assignment === config.assignment)
    .filter((cell) => cell.top_k !== own.topK || cell.window_size !== own.window)
    .map((cell) => ({
      topK: cell.top_k,
      window: cell.window_size,
      delta: cell.delta_mean,
      low: cell.delta_low,
      high: cell.delta_high,
      retained: cell.retained_pairs,
    }));
  return [own, ...others];
}

/**
 * Between two windows of the same top-k the loss is taken to change evenly with the logarithm of the window.
 * @param {MeasuredPoint[]} points
 * @param {number} topK
 * @param {number} window
 * @returns {Cost}
 */
export function costOf(points, topK, window) {
  const alike = points.filter((point) => point.topK === topK).sort((a, b) => a.window - b.window);
  const point = alike.find((one) => one.window === window);
  if (point !== undefined) return { kind: "measured", point };
  const after = alike.find((one) => one.window > window);
  const before = alike.filter((one) => one.window < window).pop();
  if (after === undefined || before === undefined) return { kind: "unknown" };
  const [low, at, high] = [before.window, window, after.window].map((one) => Math.log2(one + 1));
  const delta = before.delta + ((at - low) / (high - low)) * (after.delta - before.delta);
  return { kind: "interpolated", delta, between: [before, after] };
}
