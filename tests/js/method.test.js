// The pictures of docs/method.md: tests/test_method.py holds the same example numbers to the runtime.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  columnSums,
  columnTarget,
  firstGroup,
  largestGroup,
  nextBalance,
  rowSums,
  startBalance,
} from "../../docs/scripts/balance.js";
import { EXAMPLE } from "../../docs/scripts/example.js";
import { countPairs } from "../../docs/scripts/pairs.js";
import { SCORES } from "../../docs/scripts/scores.js";
import { random, times } from "./helpers.js";

const SHARED = JSON.parse(readFileSync(new URL("../fixtures/method.json", import.meta.url), "utf8"));

/** The plan after so many rounds of columns and rows. */
const balanced = (scores, rounds) => times(2 * rounds, () => 0).reduce(nextBalance, startBalance(scores));

for (const { counts, ...setting } of SHARED.pairs) {
  test(`pairs by cause as the runtime counts them: ${JSON.stringify(setting)}`, () => {
    const pairs = countPairs(EXAMPLE.order, setting);
    assert.deepEqual(pairs.counts, counts);
    assert.equal(pairs.all, (48 * 49) / 2);
    assert.equal(pairs.kept, pairs.all - counts[0]);
  });
}

for (const { scores, rounds, plan } of SHARED.balance) {
  test(`${rounds} rounds of balancing end where the runtime does`, () => {
    const found = balanced(scores, rounds).plan;
    const differences = found.flatMap((row, token) => row.map((value, group) => Math.abs(value - plan[token][group])));
    assert.ok(Math.max(...differences) < 1e-9);
  });
}

test("a step makes columns add up to T / K, the next one rows to 1", () => {
  const scores = times(7, () => times(3, () => 4 * random()));
  const columns = nextBalance(startBalance(scores));
  for (const sum of columnSums(columns.plan)) assert.ok(Math.abs(sum - 7 / 3) < 1e-9);
  assert.equal(columnTarget(columns.plan), 7 / 3);
  for (const sum of rowSums(nextBalance(columns).plan)) assert.ok(Math.abs(sum - 1) < 1e-9);
});

test("the page's scores begin in one group and end in even ones", () => {
  assert.deepEqual(SHARED.balance[0].scores, SCORES.scores);
  const start = startBalance(SCORES.scores).plan;
  assert.deepEqual(start.map(firstGroup), [0, 0, 0, 0, 0, 0]);
  assert.equal(largestGroup(start), 1);
  assert.equal(largestGroup(balanced(SCORES.scores, 10).plan), 1 / 3);
});

test("no groups leave window and sinks, all groups full attention", () => {
  const alone = countPairs(EXAMPLE.order, { topK: 0, window: 5, sinks: 2 });
  assert.equal(alone.counts[2] + alone.counts[3], 0);
  assert.equal(countPairs(EXAMPLE.order, { topK: 8, window: 0, sinks: 0 }).counts[0], 0);
});
