import assert from "node:assert/strict";
import { test } from "node:test";
import "./page.js";
import { decodeSelection, encodeSelection } from "../../assets/js/core/selection-code.js";
import { Selection, selectedPerGroup, selectGroup, selectRange, selectToken } from "../../assets/js/core/selection.js";
import { below, random, randomRun, times } from "./helpers.js";

const stored = new Map();
globalThis.window.localStorage = {
  getItem: (key) => stored.get(key) ?? null,
  setItem: (key, value) => stored.set(key, value),
};
const { run, tops } = randomRun({ numTokens: 20_000, layerIds: [0, 4], numGroups: 8 });

test("positions are sorted as numbers, and runs of neighbours are found", () => {
  const selection = new Selection([100, 9, 10, 11, 8, 101], { kind: "tokens", label: "" });
  assert.deepEqual([...selection.positions], [8, 9, 10, 11, 100, 101]);
  assert.deepEqual(selection.ranges(), [
    [8, 11],
    [100, 101],
  ]);
  assert.ok(selection.has(9) && !selection.has(12));
});

test("a selection survives the address, whatever its tokens are", () => {
  for (let round = 0; round < 40; round += 1) {
    const share = random() ** 3;
    const positions = times(run.numTokens, (pos) => pos).filter(() => random() < share);
    if (positions.length === 0) positions.push(below(run.numTokens));
    const selection = new Selection(positions, { kind: "tokens", label: "" });
    const code = encodeSelection(selection);
    assert.ok(code.length <= 4000);
    assert.ok(decodeSelection(code, run).equals(selection));
  }
  assert.ok(stored.size > 0); // long ones are kept in the browser under a short name
});

test("tokens, ranges and groups come back as what they were", () => {
  assert.equal(decodeSelection(encodeSelection(selectToken(7)), run).origin.kind, "token");
  const range = decodeSelection(encodeSelection(selectRange(90, 12)), run);
  assert.equal(range.origin.kind, "range");
  assert.deepEqual(range.ranges(), [[12, 90]]);
  const group = selectGroup(run, 1, 3);
  assert.equal(encodeSelection(group), "g4.3");
  const again = decodeSelection("g4.3", run);
  assert.deepEqual([again.origin.layer, again.origin.group], [4, 3]);
  assert.ok(again.equals(group));
  assert.equal(group.size, tops.slice(20_000).filter((top) => top === 3).length);
});

test("what an address cannot mean is no selection", () => {
  for (const code of [null, "", "x", "t", "g9.0", "g4.8", "t!", "sunknown", `t${(10 ** 9).toString(36)}`]) {
    assert.equal(decodeSelection(code, run), null);
  }
  assert.equal(encodeSelection(null), null);
});

test("selected tokens are counted by group", () => {
  const selection = new Selection(
    times(300, () => below(run.numTokens)),
    { kind: "tokens", label: "" },
  );
  const counts = selectedPerGroup(run, 0, selection);
  for (let group = 0; group < 8; group += 1) {
    assert.equal(counts[group], [...selection.positions].filter((pos) => tops[pos] === group).length);
  }
  assert.equal(
    selectedPerGroup(run, 0, null).reduce((sum, count) => sum + count),
    0,
  );
});
