// Pairs under other settings, counted from sets of groups, against the rule of the mask pair by pair.
import assert from "node:assert/strict";
import { test } from "node:test";
import { near, pairCode } from "../../assets/js/core/pair-rule.js";
import { GroupOrder } from "../../assets/js/sparsity/recount.js";
import { below, times } from "./helpers.js";

/** Every token's groups in a random order. */
function randomOrder(tokens, groups) {
  const bytes = times(tokens, () => {
    const order = times(groups, (group) => group);
    for (let at = groups - 1; at > 0; at -= 1) {
      const other = below(at + 1);
      [order[at], order[other]] = [order[other], order[at]];
    }
    return order;
  });
  return { bytes, order: new GroupOrder(Buffer.from(bytes.flat()).toString("base64"), tokens, groups) };
}

function counted(bytes, topK, { window, sinks, sliding, growth }) {
  const sets = bytes.map((order) => new Set(order.slice(0, topK)));
  let count = 0;
  for (let query = 0; query < sets.length; query += 1)
    for (let key = Math.max(0, query - (sliding ?? sets.length) + 1); key <= query; key += 1) {
      const shared = [...sets[query]].some((group) => sets[key].has(group));
      if (pairCode(shared, query - key <= near(window, query, growth), key < sinks) !== 0) count += 1;
    }
  return count;
}

for (const groups of [1, 4, 8, 40, 64])
  test(`the count is that of the rule for every pair, ${groups} groups`, () => {
    for (let round = 0; round < 30; round += 1) {
      const tokens = 1 + below(70);
      const { bytes, order } = randomOrder(tokens, groups);
      const topK = 1 + below(Math.min(groups, 4));
      const first = 1 + below(30);
      const growth = below(2) ? [first, first + below(50)] : undefined;
      const rule = { window: below(20), sinks: below(6), sliding: below(2) ? 1 + below(30) : null, growth };
      assert.equal(order.sets(topK).kept(rule), counted(bytes, topK, rule), JSON.stringify({ tokens, topK, ...rule }));
    }
  });

test("a window grows in proportion between two positions", () => {
  const at = [0, 1024, 1040, 2048, 5000, 8192, 100_000];
  assert.deepEqual(
    at.map((query) => near(64, query, [1024, 8192])),
    [64, 64, 65, 128, 312, 512, 512],
  );
  assert.equal(near(64, 100_000), 64);
});

test("a set of groups is made once, and two tokens share a group where one is among both's first", () => {
  const { bytes, order } = randomOrder(50, 40);
  const sets = order.sets(3);
  assert.equal(order.sets(3), sets);
  for (let round = 0; round < 200; round += 1) {
    const [a, b] = [below(50), below(50)];
    const shared = bytes[a].slice(0, 3).some((group) => bytes[b].slice(0, 3).includes(group));
    assert.equal(sets.share(a, b), shared);
  }
});

test("a token with a set of its own keeps it whatever the top-k", () => {
  const bytes = Buffer.from([0, 1, 2, 1, 0, 2, 2, 1, 0]).toString("base64");
  const plain = new GroupOrder(bytes, 3, 3);
  const fixed = new GroupOrder(bytes, 3, 3, [[1, 0b111, 0]]);
  const rule = { window: 0, sinks: 0, sliding: null };
  assert.equal(plain.sets(1).kept(rule), 3);
  assert.equal(fixed.sets(1).kept(rule), 5);
  assert.ok(fixed.sets(1).share(0, 1) && fixed.sets(1).share(1, 2) && !fixed.sets(1).share(0, 2));
});

test("all groups and a window as long as the text keep everything", () => {
  const { order } = randomOrder(30, 5);
  const all = (30 * 31) / 2;
  assert.equal(order.sets(5).kept({ window: 0, sinks: 0, sliding: null }), all);
  assert.equal(order.sets(1).kept({ window: 29, sinks: 0, sliding: null }), all);
  assert.equal(order.sets(1).kept({ window: 0, sinks: 30, sliding: null }), all);
});
