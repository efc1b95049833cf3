// One scored token has no interval: every sentence and chart says so.
import assert from "node:assert/strict";
import { test } from "node:test";
import "./page.js";
import { clearlyAbove, interval, reach } from "../../assets/js/compare/cells.js";
import { describe, sentences } from "../../assets/js/compare/findings.js";
import { agreementSentences } from "../../assets/js/compare/run-agreement.js";
import { qualitySentence } from "../../assets/js/compare/verdict.js";
import { interval95, sideOfZero } from "../../assets/js/core/interval.js";
import { format } from "../../assets/js/core/format.js";
import { whatIf } from "../../assets/js/strings/what-if.js";

const nats = (value) => format.signed(value, 3);

const cell = (more = {}) => ({
  kind: "focus",
  top_k: 1,
  window_size: 8,
  scored: 1,
  delta_mean: 0.25,
  delta_low: null,
  delta_high: null,
  perplexity_full: 9,
  retained_pairs: 0.5,
  repeats: 1,
  attention_full: 2,
  attention_focus: 1,
  total_full: 2,
  total_focus: 1,
  threads: 1,
  device: "cpu",
  dtype: "float32",
  ...more,
});

test("the quality of one scored token has no interval and no verdict", () => {
  const quality = { full: 9, focus: 10, scored: 1, delta_mean: 0.25, delta_low: null, delta_high: null };
  assert.match(qualitySentence(quality), /neither clearly better nor worse: \+0\.250 nats per token \(no interval\)/);
  assert.match(qualitySentence({ ...quality, delta_low: 0.1, delta_high: 0.3 }), /worse: .*95 % interval \+0\.100 to/);
  assert.match(qualitySentence({ ...quality, delta_low: -0.3, delta_high: -0.1 }), /better: /);
  assert.equal(sideOfZero(null, null), 0);
  assert.equal(whatIf.interval("+1", interval95(null, null, nats)), "That is +1 nats per token, no interval");
});

test("a measured setting of one scored token is not called better or worse than another", () => {
  assert.equal(interval(cell()), "no interval");
  assert.deepEqual(reach(cell()), [0.25, 0.25]);
  assert.equal(clearlyAbove(cell(), cell({ delta_mean: -9 })), false);
  assert.equal(clearlyAbove(cell({ delta_low: 1 }), cell({ delta_high: 0.5 })), true);
  const random = cell({ kind: "random", delta_mean: 5 });
  const words = sentences([cell(), random], new Map([["random/1/8", random]])).join(" ");
  assert.match(words, /window 8, \+0\.250 nats per token \(no interval\)/);
  assert.match(words, /clearly better in 0 of 1 setting, clearly worse in 0/);
  const tooltip = describe(cell(), 9).flatMap((node) => (node ? [node.textContent] : []));
  assert.ok(tooltip.includes("+0.250 nats per token (no interval)"));
  assert.equal(tooltip.filter((line) => line.includes("by the interval")).length, 0);
});

test("two runs of one scored token are not told apart", () => {
  const pair = {
    run: { numTokens: 2, layerIds: [0], numLayers: 1 },
    app: { layerIndex: 0 },
    answer: { layers: [], difference: { mean: 0.25, low: null, high: null, count: 1 } },
    otherIndex: 0,
    changedPositions: () => [],
  };
  assert.equal(
    agreementSentences(pair)[0],
    "Neither predicts clearly better: +0.250 nats per token (no interval, 1 scored token).",
  );
});
