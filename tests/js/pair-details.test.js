import assert from "node:assert/strict";
import { test } from "node:test";
import { Run } from "../../assets/js/core/run.js";
import { pairReason } from "../../assets/js/sparsity/pair-details.js";
import { base64, randomCells, randomRun, times } from "./helpers.js";

const PARTS = [
  { heads: [0], top_k: 1, window: 4, full: false },
  { heads: [1], top_k: null, window: 4, full: true },
];

/** A run of one layer with the sets of groups that `sets` names by token; all others are in group A alone. */
function runOf({ sets = {}, sliding = null, changes = [] } = {}) {
  const { payload } = randomRun({ layerIds: [2], numGroups: 3 });
  const membership = base64(Uint8Array.from({ length: 40 }, (_, pos) => sets[pos] ?? 1));
  Object.assign(payload.layers[0], { sliding_window: sliding, parts: PARTS });
  Object.assign(payload.run, { changes });
  return new Run({ ...payload, cells: { 2: { ...randomCells(40, 3).payload, membership } } }, () => {});
}

test("a dropped pair beyond the layer's own window says so, whatever the groups and for full heads, too", () => {
  const run = runOf({ sliding: 20, sets: { 5: 2 } });
  const reasons = times(2, (part) => pairReason({ run, layerIndex: 0, part }, 30, 10, "dropped"));
  assert.deepEqual(reasons, times(2, () => "Dropped: 20 tokens apart, beyond the layer's own window of 20"));
  const within = pairReason({ run, layerIndex: 0, part: 0 }, 24, 5, "dropped");
  assert.equal(within, "Dropped: 19 tokens apart and no shared group");
  const none = pairReason({ run: runOf({ sets: { 5: 2 } }), layerIndex: 0, part: 0 }, 30, 5, "dropped");
  assert.equal(none, "Dropped: 25 tokens apart and no shared group");
});

test("a kept pair names the groups that both tokens share, or that it was linked by hand", () => {
  const linked = { changes: ["see:2:30:10"], sets: { 30: 0b1001, 10: 0b1010, 28: 0b1010 } }; // the bit after the groups
  const app = { run: runOf(linked), layerIndex: 0, part: 0 };
  assert.equal(pairReason(app, 30, 10, "group_only"), "Kept: linked by hand, 20 tokens apart");
  assert.equal(
    pairReason(app, 30, 28, "local_and_group"),
    "Kept twice over: 2 tokens apart, within the window of 4, and linked by hand",
  );
  assert.equal(pairReason(app, 39, 9, "group_only"), "Kept: both are in group A, 30 tokens apart");
  assert.equal(pairReason({ ...app, part: 1 }, 30, 10, "group_only"), "Kept: full attention, 20 tokens apart");
});

test("a pair of a layer whose groups are on their way is not said to be linked by hand", () => {
  const { payload } = randomRun({ layerIds: [2], numGroups: 3 });
  const top = base64(Uint8Array.from({ length: 40 }, (_, pos) => pos % 2));
  Object.assign(payload.layers[0], { parts: PARTS });
  Object.assign(payload.run, { changes: ["see:2:30:10"] });
  const app = { run: new Run({ ...payload, top }, () => {}), layerIndex: 0, part: 0 };
  assert.equal(pairReason(app, 30, 9, "group_only"), "Kept: both are in one group, 21 tokens apart");
});
