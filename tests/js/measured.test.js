// What a setting costs: measured, between two that were, or not known.
import assert from "node:assert/strict";
import { test } from "node:test";
import { costOf, measuredPoints } from "../../assets/js/sparsity/measured.js";

const config = { top_k: 1, window: 16, num_sinks: 4, assignment: "causal" };

const quality = { delta_mean: 0.4, delta_low: 0.3, delta_high: 0.5 };

const cell = (topK, window, delta, more = {}) => ({
  kind: "focus",
  top_k: topK,
  window_size: window,
  num_sinks: 4,
  assignment: "causal",
  delta_mean: delta,
  delta_low: delta - 0.01,
  delta_high: delta + 0.01,
  retained_pairs: 0.5,
  ...more,
});

const run = { config, quality, retained: 0.3 };

test("the run and the grid's settings of the same centroids, sinks and assignment are points", () => {
  const points = measuredPoints(run, [
    cell(2, 16, 0.1),
    cell(1, 16, 9), // the run's own setting once more
    cell(1, 64, 9, { kind: "random" }),
    cell(0, 64, 9, { kind: "window" }),
    cell(1, 64, 9, { num_sinks: 0 }),
    cell(1, 64, 9, { assignment: "sinkhorn" }),
  ]);
  assert.deepEqual(
    points.map(({ topK, window, delta }) => [topK, window, delta]),
    [
      [1, 16, 0.4],
      [2, 16, 0.1],
    ],
  );
  assert.deepEqual([points[0].low, points[0].high, points[0].retained], [0.3, 0.5, 0.3]);
});

test("a measured setting is its measurement, and one between two windows lies between them by the logarithm", () => {
  const points = measuredPoints(run, [cell(1, 127, 0.1), cell(2, 255, 0.05)]);
  assert.deepEqual(costOf(points, 1, 127), { kind: "measured", point: points[1] });
  const cost = costOf(points, 1, 64);
  assert.equal(cost.kind, "interpolated");
  const share = (Math.log2(65) - Math.log2(17)) / (7 - Math.log2(17));
  assert.ok(Math.abs(cost.delta - (0.4 - 0.3 * share)) < 1e-12);
  assert.deepEqual(cost.between, [points[0], points[1]]);
});

test("nothing is said beyond what was measured, or of another top-k", () => {
  const points = measuredPoints(run, [cell(1, 64, 0.1), cell(2, 64, 0.05)]);
  for (const [topK, window] of [
    [1, 8],
    [1, 65],
    [2, 16],
    [3, 64],
  ])
    assert.deepEqual(costOf(points, topK, window), { kind: "unknown" });
});
