import assert from "node:assert/strict";
import { test } from "node:test";
import { mean } from "../../assets/js/core/arrays.js";
import { AttentionPart } from "../../assets/js/sparsity/attention.js";
import { random, times } from "./helpers.js";

/** Shares of the causes that add up to 1, of one layer without distant attention and of one with some. */
function shares() {
  const heads = times(6, () => times(4, random)).map((row) => row.map((share) => share / row.reduce((a, b) => a + b)));
  const near = heads.map(([local, sinks]) => [local / (local + sinks), sinks / (local + sinks), 0, 0]);
  const cause = (at) => [near, heads].map((layer) => layer.map((row) => row[at]));
  return { local: cause(0), sinks: cause(1), grouped: cause(2), dropped: cause(3) };
}

test("what shuffled groups keep is of the layers that have distant attention, as the groups' own share is", () => {
  const causes = shares();
  const answer = { ...causes, sharing: [0.9, 0.25], mass_kept: causes.dropped.map((row) => row.map((x) => 1 - x)) };
  const part = { answer, kind: "distant_mass_kept" };
  const { nulls, layerMean } = AttentionPart.prototype;
  assert.equal(layerMean.call(part, 0), null);
  assert.equal(nulls.call(part, 0).shuffled, null);
  assert.equal(nulls.call(part, 1).shuffled, 0.25);
  part.kind = "mass_kept";
  const far = mean(causes.grouped[1].map((grouped, head) => grouped + causes.dropped[1][head]));
  assert.ok(Math.abs(nulls.call(part, 1).shuffled - (1 - far + 0.25 * far)) < 1e-12);
  assert.ok(Math.abs(nulls.call(part, 0).shuffled - 1) < 1e-12);
});

test("where no layer has distant attention the finding says so, and names no share", () => {
  const causes = shares();
  const near = Object.fromEntries(["local", "sinks", "grouped", "dropped"].map((name) => [name, [causes[name][0]]]));
  const answer = { ...near, sharing: [0.9], mass_kept: [times(6, () => 1)], num_tokens: 40 };
  const app = { run: { numTokens: 40, layers: [{ parts: [{ full: false }] }] } };
  const part = { answer, app, heads: 6, kind: "distant_mass_kept", finding: {}, denominator: {} };
  Object.setPrototypeOf(part, AttentionPart.prototype);
  part.showFinding();
  assert.match(part.finding.textContent, /^No attention falls beyond window and sinks here/);
  part.kind = "mass_kept";
  part.showFinding();
  assert.match(part.finding.textContent, /keeps 100\.0\u00a0% of full/);
  assert.match(part.denominator.textContent, /^Means over 1 layer, 6 heads and 40 query positions\.$/);
});
