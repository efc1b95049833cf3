// Frames of a training's film: groups, order and kept pairs, against the rule of the mask pair by pair.
import assert from "node:assert/strict";
import { test } from "node:test";
import { pairCode } from "../../assets/js/core/pair-rule.js";
import { Frames } from "../../assets/js/training/frames.js";
import { below, times } from "./helpers.js";

const TOKENS = 30;
const FRAMES = 3;

const base64 = (values) => Buffer.from(values.buffer).toString("base64");

/** Twelve groups, so that memberships take two bytes; each token is in one or two. */
function randomFilm(sliding = null, growth = null) {
  const sets = times(FRAMES, () => times(TOKENS, () => new Set([below(12), below(12)])));
  const bytes = sets.flat().flatMap((set) => {
    const bits = [...set].reduce((sum, group) => sum | (1 << group), 0);
    return [bits & 255, bits >> 8];
  });
  const tops = sets.flat().map((set) => [...set][0]);
  const film = {
    pieces: times(TOKENS, () => "a"),
    steps: [10, 20, 30],
    num_groups: 12,
    window: 4,
    window_growth: growth,
    num_sinks: 2,
    sliding_window: sliding,
    top: base64(Uint8Array.from(tops)),
    membership: base64(Uint8Array.from(bytes)),
    places: base64(Int16Array.from(times(FRAMES * TOKENS * 2, () => below(60000) - 30000))),
  };
  return { sets, frames: new Frames(film) };
}

for (const [sliding, growth] of [[null], [9], [null, [8, 20]]]) {
  test(`a pair is kept if it is near, of one group, or with a sink, sliding window ${sliding}, ${growth}`, () => {
    const { sets, frames } = randomFilm(sliding, growth);
    for (let frame = 0; frame < FRAMES; frame += 1) {
      const codes = frames.mask(frame);
      for (let query = 0; query < TOKENS; query += 1)
        for (let key = 0; key < TOKENS; key += 1) {
          const seen = key <= query && (sliding === null || query - key < sliding);
          const shared = [...sets[frame][query]].some((group) => sets[frame][key].has(group));
          const times = growth ? Math.max(growth[0], Math.min(query, growth[1])) / growth[0] : 1;
          const expected = seen ? pairCode(shared, query - key <= Math.floor(4 * times), key < 2) : 0;
          assert.equal(codes[query * TOKENS + key], expected);
        }
    }
  });
}

test("the order by group is that of the last frame, in the order of the text within each", () => {
  const { sets, frames } = randomFilm();
  const order = frames.order("group");
  assert.deepEqual(
    [...order].sort((a, b) => a - b),
    frames.order("text"),
  );
  const groups = order.map((pos) => [...sets[2][pos]][0]);
  for (let at = 1; at < TOKENS; at += 1)
    assert.ok(groups[at - 1] < groups[at] || (groups[at - 1] === groups[at] && order[at - 1] < order[at]));
});

test("sizes and changes are counted", () => {
  const { sets, frames } = randomFilm();
  const tops = sets.map((frame) => frame.map((set) => [...set][0]));
  assert.deepEqual(
    frames.sizes(1),
    times(12, (group) => tops[1].filter((top) => top === group).length),
  );
  assert.equal(frames.changed(0), 0);
  assert.equal(frames.changed(2), tops[2].filter((top, pos) => top !== tops[1][pos]).length);
});

test("between two frames a token is on the way", () => {
  const { frames } = randomFilm();
  const [x, y] = frames.place(0, 1, 0.5, 7);
  const [a, b] = [frames.place(0, 1, 0, 7), frames.place(0, 1, 1, 7)];
  assert.deepEqual([x, y], [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]);
  assert.deepEqual(b, frames.place(1, 2, 0, 7));
});
