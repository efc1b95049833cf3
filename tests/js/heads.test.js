import assert from "node:assert/strict";
import { test } from "node:test";
import {
  budgetChip,
  budgetGroups,
  headCount,
  isUsual,
  partOf,
  partTitle,
  shortestWindow,
  someFull,
} from "../../assets/js/core/heads.js";
import { pairs } from "../../assets/js/strings/sparsity.js";

const config = { top_k: 1, window: 64, budget: [] };

/** @param {number[]} heads @param {object} setting */
const part = (heads, setting = {}) => ({
  heads,
  query_heads: false,
  top_k: 1,
  window: 64,
  full: false,
  retained_pairs: 0.5,
  ...setting,
});
const full = { full: true, top_k: null };

test("parts are titled by their heads, of either kind, and their setting", () => {
  assert.equal(partTitle(part([0, 2])), "heads 0, 2: top-k 1, window 64");
  assert.equal(partTitle(part([4], { query_heads: true, top_k: 0, window: 9 })), "query head 4: no groups, window 9");
  assert.equal(partTitle(part([1], full)), "head 1: full attention");
  assert.ok(isUsual(part([0]), config));
  assert.ok(!isUsual(part([0], { top_k: 0 }), config));
});

test("the mask drops nothing within the shortest window of heads that have one", () => {
  const layers = [{ parts: [part([0], full), part([1])] }, { parts: [part([0], { window: 9 }), part([1])] }];
  assert.equal(shortestWindow({ config, layers }), 9);
  assert.equal(shortestWindow({ config, layers: [{ parts: [part([0, 1], { window: 9, ...full })] }] }), 64);
});

test("distant pairs are said to be kept by groups alone where no head attends fully", () => {
  const { far } = pairs.distance;
  for (const [parts, words] of [
    [[part([0]), part([1], full)], "groups, and heads with full attention, keep 9 %"],
    [[part([0]), part([1], { top_k: 0 })], "the groups keep 9 %"],
  ])
    assert.ok(far("9 %", "8 %", someFull([{ parts: [part([0, 1])] }, { parts }])).includes(words));
});

test("a budget is counted in query heads where some layer tells them apart", () => {
  const byKey = [
    { layer: 0, parts: [part([0, 2]), part([1], full)] },
    { layer: 1, parts: [part([0, 1, 2], { window: 9 })] },
    { layer: 2, parts: [part([0, 1, 2])] },
  ];
  assert.equal(budgetChip({ config, layers: byKey }), "budget: 1 head in full, 1 layer set apart");
  const query = { query_heads: true };
  const layers = [...byKey, { layer: 3, parts: [part([0, 1, 2, 3, 4], query), part([5], { ...query, top_k: 0 })] }];
  assert.equal(headCount(layers[3].parts), 6);
  assert.equal(budgetChip({ config, layers }), "budget: 2 query heads in full, 1 layer and 1 query head set apart");
  const groups = budgetGroups({ config, layers });
  assert.deepEqual(
    groups.map(({ setting }) => setting),
    ["full attention", "top-k 1, window 9", "no groups, window 64"],
  );
  assert.deepEqual(groups[2].heads, [{ layer: 3, heads: [5], query: true }]);
});

test("the part of a head is found, and without one the first that is not in full", () => {
  const parts = [part([1], full), part([0, 2])];
  assert.equal(partOf(parts, 2), 1);
  assert.equal(partOf(parts, 1), 0);
  assert.equal(partOf(parts, null), 1);
  assert.equal(partOf(parts, 7), 1);
});
