// Sentences about one of something.
import assert from "node:assert/strict";
import { test } from "node:test";
import { groups } from "../../assets/js/strings/groups.js";
import { map } from "../../assets/js/strings/map.js";
import { statistics } from "../../assets/js/strings/statistics.js";

test("statistics of a text of one sentence say so", () => {
  const { overview } = statistics;
  assert.equal(overview.tokensValue("9", "1", "sentence"), "9 tokens in 1 sentence");
  assert.equal(overview.tokensValue("9", "2", "sentence"), "9 tokens in 2 sentences");
  assert.match(overview.short.few("1", "sentence"), /^This text has only 1 sentence: too short/);
  assert.match(overview.short.few("3", "sentence"), /^This text has only 3 sentences: too short/);
});

test("neighbouring tokens are one token apart, and one category is left out", () => {
  assert.equal(statistics.distances.apart("1"), "1 token apart");
  assert.equal(statistics.distances.apart("2–3"), "2–3 tokens apart");
  assert.match(statistics.groups.rest("1"), /^1 category with less than 1 % of the text is left out;/);
  assert.match(statistics.groups.rest("4"), /^4 categories with less than 1 % of the text are left out;/);
});

test("the mean of a group of one token is of 1 token, and one head is no heads", () => {
  assert.match(map.mean("A", 3, "1"), /\(1 token\)$/);
  assert.match(map.mean("A", 3, "2"), /\(2 tokens\)$/);
  assert.match(map.meanDrawn("A", 3, "1"), /\(1 of them is drawn\)$/);
  assert.match(map.meanDrawn("A", 3, "2"), /\(2 of them are drawn\)$/);
  assert.match(groups.finder.massMeasured("1", "64"), /mean over 1 head and/);
  assert.match(groups.finder.massMeasured("8", "64"), /mean over 8 heads and/);
});
