// The mean along a text: its name says of how many tokens it is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { meanLine } from "../../assets/js/compare/loss-chart.js";

test("a mean is over as many tokens as its name says, and over fewer at the ends", () => {
  const differences = [null, ...Array.from({ length: 99 }, (_, place) => (place === 49 ? 1 : 0))];
  const line = meanLine(differences, 15, "#000");
  assert.equal(line.name, "mean of up to 15 tokens");
  assert.equal(line.y.filter((value) => value > 0).length, 15);
  for (const value of line.y.filter((value) => value > 0)) assert.ok(Math.abs(value - 1 / 15) < 1e-12);
});

test("a text of fewer scored tokens is named with these", () => {
  const line = meanLine([null, 1, 2, 3, 4, 5, 6, 7], 15, "#000");
  assert.equal(line.name, "mean of up to 7 tokens");
  assert.equal(line.y[3], 4);
});
