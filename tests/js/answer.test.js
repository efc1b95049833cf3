import assert from "node:assert/strict";
import { test } from "node:test";
import { collapsedLayers, farRepeats, tokensThatLose } from "../../assets/js/shell/answer.js";

const losing = (differences) => ({
  numTokens: differences.length,
  lossDifference: (pos) => differences[pos],
});

test("the fewest tokens that lose as much as the whole text", () => {
  // 3 nats on balance; the two largest lose 2.5, the three largest 3.4
  assert.deepEqual(tokensThatLose(losing([null, 1.5, -0.8, 0.9, 1.0, 0.4, 0])), [1, 4, 3]);
  assert.deepEqual(tokensThatLose(losing([null, 2])), [1]);
});

test("a text that loses nothing has no such tokens", () => {
  assert.deepEqual(tokensThatLose(losing([null, 1, -1])), []);
  assert.deepEqual(tokensThatLose(losing([null, -2, 1])), []);
  assert.deepEqual(tokensThatLose(losing([null])), []);
});

test("tokens whose latest use lies beyond the window", () => {
  const run = { config: { window: 2 }, pieces: ["a", "b", "c", "a", "a", "b", "c", "c", "d"] };
  // a at 3 is three tokens after 0, a at 4 one after 3; b at 5 four after 1; c at 6 four after 2, c at 7 one after 6
  assert.deepEqual([...farRepeats(run)], [3, 5, 6]);
  assert.deepEqual([...farRepeats({ ...run, config: { window: 3 } })], [5, 6]);
  assert.deepEqual([...farRepeats({ ...run, config: { window: 2, window_growth: [3, 5] } })], [3, 5, 6]);
  assert.deepEqual([...farRepeats({ ...run, config: { window: 2, window_growth: [2, 9] } })], []);
});

test("collapsed layers have more than half of the tokens in one group, and a head that uses groups", () => {
  const [usual, alone, full] = [1, 0, null].map((topK) => ({ full: topK === null, top_k: topK }));
  const parts = [[usual], [alone, usual, full], [full], [usual], [alone], [alone, full]];
  const layers = [0.5, 0.51, 0.9, 0.7, 0.8, 0.9].map((dominance, layer) => {
    return { layer, dominance, parts: parts[layer] };
  });
  assert.deepEqual(collapsedLayers({ layers, numGroups: 8 }), [1, 3]);
  assert.deepEqual(collapsedLayers({ layers, numGroups: 2 }), []);
});
