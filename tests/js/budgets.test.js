import assert from "node:assert/strict";
import { test } from "node:test";
import {
  nearAndFar,
  percentChange,
  shareDigits,
  worstDomain,
  domainsToName,
} from "../../assets/js/centroids/budget-points.js";
import { budgetWords, countChanges, settingInWords } from "../../assets/js/core/setting-words.js";
import { below, times } from "./helpers.js";

test("every exception of a budget is counted once, by what it changes", () => {
  for (let round = 0; round < 50; round += 1) {
    const budget = times(below(40), (i) => ({
      layer: i,
      ...[{}, { head: below(4) }, { head: below(4) }, { query_head: below(12) }][below(4)],
      ...[{ full: true }, { top_k: 2 }, { window: 9 }, { top_k: 3, window: 9 }, { top_k: 0, window: 9 }][below(5)],
    }));
    const { heads, layers, queryHeads } = countChanges(budget);
    const counts = [heads, layers, queryHeads].flatMap((own) => Object.values(own));
    const total = counts.reduce((sum, count) => sum + count, 0);
    assert.equal(total, budget.length);
    assert.equal(heads.full, budget.filter((entry) => entry.full && entry.head !== undefined).length);
    assert.equal(heads.alone, budget.filter((entry) => entry.top_k === 0 && entry.head !== undefined).length);
    assert.equal(queryHeads.full, budget.filter((entry) => entry.full && entry.query_head !== undefined).length);
  }
});

test("a budget in words names heads and whole layers, and one of a kind as one", () => {
  assert.equal(budgetWords(undefined), null);
  assert.equal(budgetWords([]), null);
  const heads = [...times(12, (head) => ({ layer: 1, head, full: true })), { layer: 2, head: 0, top_k: 2 }];
  assert.equal(budgetWords(heads), "12 heads in full, 1 head with another top-k");
  const layers = [
    { layer: 4, full: true },
    { layer: 5, window: 3 },
  ];
  assert.equal(budgetWords(layers), "1 layer in full, 1 layer with another setting");
  const alone = times(3, (head) => ({ layer: 1, query_head: head, top_k: 0, window: 9 }));
  const query = [...alone, { layer: 2, head: 0, top_k: 0 }];
  assert.equal(budgetWords(query), "1 head without groups, 3 query heads without groups");
});

test("points that lose far more than the file are not drawn, the file and its base always are", () => {
  const point = (/** @type {number} */ loss, more = {}) => ({
    retained_pairs: 0.4,
    excess: { a: loss, b: -0.01 },
    budget: [{ layer: 0 }],
    own: false,
    held_out: false,
    ...more,
  });
  const base = point(0.09, { budget: [] });
  const own = point(0.02, { own: true });
  const [awful, bad, good] = [point(3.1), point(0.13), point(0.001)];
  assert.deepEqual(nearAndFar([awful, bad, base, own, good], 0), { near: [bad, base, own, good], far: [awful] });
  assert.deepEqual(nearAndFar([awful, own, good], 0.5), { near: [own, good], far: [awful] });
  assert.deepEqual(nearAndFar([bad, own, good], 0.1).far, []);
  assert.deepEqual(nearAndFar([awful, bad], 0), { near: [awful, bad], far: [] });
  assert.deepEqual(nearAndFar([awful, own], 0), { near: [awful, own], far: [] });
});

test("points are told apart, and the worst domain is the one that loses most", () => {
  const points = [0.31, 0.312, 0.4].map((share) => ({ retained_pairs: share, excess: { a: -0.01, b: 0.02 } }));
  assert.equal(shareDigits(points), 1);
  assert.equal(shareDigits(points.slice(1)), 0);
  assert.deepEqual(worstDomain(points[0]), ["b", 0.02]);
  assert.deepEqual(domainsToName(points[0], 8), Object.entries(points[0].excess));
  const many = { ...points[0], excess: { a: 0.01, b: -0.02, c: 0.04, d: 0.02, e: 0.03 } };
  const worst = [
    ["c", 0.04],
    ["e", 0.03],
    ["d", 0.02],
  ];
  assert.deepEqual(domainsToName(many, 4), worst);
  assert.equal(percentChange(0.0213), "+2.13\u00a0%");
  assert.equal(percentChange(-0.25), "\u221225.0\u00a0%");
});

test("a setting is in words, also a budget, and only layers that are not named are all", () => {
  const budget = [{ layer: 1, full: true }, { layer: 2, head: 0, top_k: 0 }, { layer: 2, head: 1, top_k: 0 }];
  assert.equal(settingInWords("budget", budget), "1 layer in full, 2 heads without groups");
  for (const name of ["budget", "window_growth", "text_sinks", "logit_factors"])
    for (const absent of [null, undefined]) assert.equal(settingInWords(name, absent), "none");
  assert.equal(settingInWords("layers", null), "all");
  assert.equal(settingInWords("layers", [0, 2]), "0, 2");
  assert.equal(settingInWords("window_growth", [1024, 8192]), "1024, 8192");
  assert.equal(settingInWords("logit_factors", true), "yes");
  assert.equal(settingInWords("top_k", 0), "0");
});
