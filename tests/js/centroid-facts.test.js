// What a centroid file's card says of its results on held-out text.
import assert from "node:assert/strict";
import { test } from "node:test";
import { heldOut } from "../../assets/js/centroids/facts.js";

const RECORD = { full: 20, scored: null, focus: {} };

test("results of a training and of a budget are named, and only their absence is called that", () => {
  assert.deepEqual(heldOut({ held_out: null, budget_held_out: 0 }), ["The file holds no held-out result."]);
  assert.deepEqual(heldOut({ held_out: null }), ["The file holds no held-out result."]);
  const inside = "with its budget, on text of 14 domains: see Look inside";
  assert.deepEqual(heldOut({ held_out: null, budget_held_out: 14 }), [inside]);
  const [full, ...rest] = heldOut({ held_out: RECORD, budget_held_out: 1 });
  assert.match(full, /^perplexity with full attention 20/);
  assert.deepEqual(rest, ["with its budget, on text of 1 domain: see Look inside"]);
});
