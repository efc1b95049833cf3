// The three arrangements of a layer's kept pairs, against the rule of the mask pair by pair.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KEPT_CAUSES } from "../../assets/js/core/pair-rule.js";
import { KeptPairs } from "../../assets/js/sparsity/arrangement.js";
import { Links } from "../../assets/js/tokens/links.js";
import { below, times } from "./helpers.js";

const TOKENS = 48;

function randomRun(sliding = null, growth = undefined) {
  const groups = times(TOKENS, () => below(4));
  return {
    groups,
    numTokens: TOKENS,
    config: { num_sinks: 2, window_growth: growth },
    layers: [{ sliding_window: sliding, parts: [{ window: 5 }] }],
    shareGroup: (_, a, b) => groups[a] === groups[b],
    top: (_, pos) => groups[pos],
  };
}

/** [row, column, cause] of every pair in a picture with a cell for each. */
function placed(pairs, from, to, progress) {
  const cells = pairs.raster(pairs.arrangement(from), pairs.arrangement(to), progress, 1);
  const found = [];
  cells.forEach((count, at) => {
    const cell = Math.floor(at / KEPT_CAUSES.length);
    for (let n = 0; n < count; n += 1)
      found.push([Math.floor(cell / TOKENS), cell % TOKENS, KEPT_CAUSES[at % KEPT_CAUSES.length]]);
  });
  return found;
}

for (const [sliding, growth] of [[null], [7], [null, [9, 30]], [15, [9, 30]]]) {
  test(`in the order of the text every pair stands where the mask has it, ${sliding} ${growth}`, () => {
    const run = randomRun(sliding, growth);
    const expected = times(TOKENS, (query) => {
      const links = new Links(run, 0, query, 0);
      return links.back().map((key) => [query, key, links.cause(key)]);
    }).flat();
    const pairs = new KeptPairs(run, 0, 0);
    assert.deepEqual(placed(pairs, "text", "text", 0), expected);
    assert.equal(pairs.count, expected.length);
    assert.equal(pairs.share, expected.length / ((TOKENS * (TOKENS + 1)) / 2));
  });
}

test("sorted by group, pairs that only a group keeps lie in the blocks on the diagonal", () => {
  const run = randomRun();
  const pairs = new KeptPairs(run, 0, 0);
  const sorted = [...run.groups].sort((a, b) => a - b);
  const inOrder = placed(pairs, "text", "group", 1);
  assert.equal(inOrder.length, pairs.count);
  for (const [row, column, cause] of inOrder) {
    if (cause === "group_only" || cause === "local_and_group") assert.equal(sorted[row], sorted[column]);
    else assert.notEqual(sorted[row], sorted[column]);
  }
  const places = [...pairs.place].sort((a, b) => a - b);
  assert.deepEqual(places, times(TOKENS, (pos) => pos));
});

test("pushed together, every query's keys fill its row from the left", () => {
  const run = randomRun();
  const pairs = new KeptPairs(run, 0, 0);
  const filled = placed(pairs, "group", "packed", 1);
  for (let query = 0; query < TOKENS; query += 1) {
    const columns = filled.filter(([row]) => row === query).map(([, column]) => column);
    const kept = new Links(run, 0, query, 0).back().length;
    assert.deepEqual(columns, times(kept, (column) => column));
  }
});

test("on the way from one arrangement to another no pair is lost", () => {
  const pairs = new KeptPairs(randomRun(), 0, 0);
  for (const progress of [0, 0.3, 0.77, 1])
    assert.equal(placed(pairs, "text", "packed", progress).length, pairs.count);
  const coarse = pairs.raster(pairs.arrangement("text"), pairs.arrangement("group"), 0.5, 7);
  assert.equal(
    coarse.reduce((sum, count) => sum + count),
    pairs.count,
  );
});
