// What a token attends to, decoded row by row: the mean over heads first, then each head.
import assert from "node:assert/strict";
import { test } from "node:test";
import { AttentionRows } from "../../assets/js/tokens/attention-rows.js";
import { base64 } from "./helpers.js";

const payload = {
  layer: 4,
  rows: 3,
  keys: base64(Int32Array.of(7, 2, 7, -1, 2, 5)),
  full: base64(Float32Array.of(0.5, 0.25, 0.75, 0, 0.5, 0.125)),
  focus: base64(Float32Array.of(0.5, 0, 1, 0, 0, 0.25)),
  kept: base64(Float32Array.of(0.5, 0, 1, 1, 0, 1)),
  full_kept: base64(Float32Array.of(0.625, 0.75, 0.5)),
};

test("the mean comes without a head, places without a key are left out", () => {
  const rows = new AttentionRows(payload);
  assert.equal(rows.numHeads, 2);
  assert.deepEqual(rows.of(null), [
    { key: 7, full: 0.5, focus: 0.5, kept: 0.5 },
    { key: 2, full: 0.25, focus: 0, kept: 0 },
  ]);
  assert.deepEqual(rows.of(0), [{ key: 7, full: 0.75, focus: 1, kept: 1 }]);
  assert.deepEqual(
    rows.of(1).map(({ key }) => key),
    [2, 5],
  );
  assert.deepEqual([rows.keptOf(null), rows.keptOf(0), rows.keptOf(1)], [0.625, 0.75, 0.5]);
});

test("numbers that do not belong together are refused", () => {
  assert.throws(() => new AttentionRows({ ...payload, full: base64(Float32Array.of(1, 2)) }));
  assert.throws(() => new AttentionRows({ ...payload, full_kept: base64(Float32Array.of(1, 2)) }));
});
