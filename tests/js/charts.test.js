import assert from "node:assert/strict";
import { test } from "node:test";
import { groupColour, mix } from "../../assets/js/core/colours.js";
import { confidenceShade, lossShade, shareShade } from "../../assets/js/core/shades.js";
import { frontier, labelSides } from "../../assets/js/compare/frontier.js";
import { countFlow, place } from "../../assets/js/groups/flow-layout.js";
import { fits, ranked } from "../../assets/js/groups/finder-rows.js";
import {
  chanceVerdict,
  indistinctWords,
  statInterval,
  statKey,
  statNumber,
} from "../../assets/js/statistics/numbers.js";
import { statRows } from "../../assets/js/statistics/rows.js";
import { statistics } from "../../assets/js/strings/statistics.js";
import { Curve } from "../../assets/js/training/curve.js";
import { below, random, randomRun, times } from "./helpers.js";

const PAGE = { light: "#ffffff", dark: "#0f141c" };

function luminance(hex) {
  const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
  const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

for (const theme of ["light", "dark"]) {
  test(`all 64 group colours are distinct, and the first eight reach 3:1 on the ${theme} page`, () => {
    const colours = times(64, (group) => groupColour(group, theme));
    assert.equal(new Set(colours).size, 64);
    for (const [group, colour] of colours.entries()) {
      const least = group < 8 ? 3 : 2.4; // generated ones are weaker where green is
      assert.match(colour, /^#[0-9a-f]{6}$/);
      assert.ok(contrast(colour, PAGE[theme]) >= least, `${colour} has ${contrast(colour, PAGE[theme]).toFixed(2)}`);
    }
  });
}

test("mixing goes from the ground to the colour", () => {
  assert.equal(mix("#102030", "#ffffff", 1), "#102030");
  assert.equal(mix("#102030", "#ffffff", 0), "#ffffff");
  assert.equal(mix("#000000", "#ffffff", 0.5), "#808080");
});

test("shades step from least to most", () => {
  assert.deepEqual(
    [0.25, 1, 0.1].map((value) => confidenceShade(value, 4)),
    ["s0", "s7", "s0"],
  );
  assert.deepEqual([-0.1, 0, 0.5, 1].map(shareShade), ["s0", "s0", "s4", "s7"]);
  assert.deepEqual([null, -2, 0, 2].map(lossShade), ["none", "d0", "d4", "d8"]);
});

test("the frontier holds the points that no other beats", () => {
  const points = times(60, () => [random(), random()]);
  const beaten = ([x, y]) => points.some(([a, b]) => a <= x && b <= y && (a < x || b < y));
  const expected = points.filter((point) => !beaten(point)).sort((a, b) => a[0] - b[0]);
  assert.deepEqual(frontier(points), expected);
});

test("labels are placed where there is room, and left out where there is none", () => {
  const free = { x: 100, y: 100, top: 95, bottom: 105, words: "k 1" };
  assert.equal(labelSides([free], [], 6)[0], "middle right");
  const wall = { left: 105, right: 300, top: 0, bottom: 300 };
  assert.equal(labelSides([free], [wall], 6)[0], "middle left");
  assert.equal(labelSides([free], [{ left: 0, right: 300, top: 0, bottom: 300 }], 6)[0], null);
});

test("flows count every token once, and blocks hold their tokens without overlap", () => {
  const { run, tops } = randomRun({ numTokens: 500, layerIds: [1, 2, 3], numGroups: 6 });
  const flows = [0, 1].map((from) => ({ from, to: from + 1, counts: countFlow(run, from, from + 1) }));
  for (const { from, counts } of flows) {
    assert.equal(
      counts.reduce((total, count) => total + count),
      500,
    );
    const [a, b] = [below(6), below(6)];
    const both = times(500, (pos) => pos).filter(
      (pos) => tops[from * 500 + pos] === a && tops[from * 500 + 500 + pos] === b,
    );
    assert.equal(counts[a * 6 + b], both.length);
  }
  for (const column of place(run, [0, 1, 2], flows, 800)) {
    assert.deepEqual(
      [...column.order].sort((a, b) => a - b),
      times(6, (group) => group),
    );
    let bottom = 0;
    for (const group of column.order) {
      const block = column.blocks[group];
      assert.ok(block.count === 0 || block.y >= bottom);
      bottom = block.y + block.height;
    }
  }
});

test("rows are ranked either way with empty values last, and filtered", () => {
  const rows = times(30, (i) => ({ i, value: random() < 0.3 ? null : random() }));
  for (const down of [true, false]) {
    const values = ranked(rows, (row) => row.value, down).map((row) => row.value);
    const filled = values.filter((value) => value !== null);
    assert.deepEqual(values.slice(0, filled.length), filled);
    assert.deepEqual(
      filled,
      [...filled].sort((a, b) => (down ? b - a : a - b)),
    );
  }
  const row = {
    layerIndex: 2,
    name: "mostly Pronouns",
    className: "name",
    purity: 0.9,
    null_high: 0.5,
    flags: [],
    characteristic: [["Paris", 3, 4]],
    frequent: [["the", 9]],
  };
  const open = { layer: "all", class: "all", only: "all", token: "" };
  assert.ok(fits(row, open));
  assert.ok(fits(row, { ...open, layer: "l2", class: "name", only: "above", token: " pARis" }));
  assert.ok(fits(row, { ...open, token: "pronoun" }) && !fits(row, { ...open, token: "verbs" }));
  assert.ok(!fits(row, { ...open, layer: "l1" }));
  assert.ok(!fits(row, { ...open, class: "verb" }));
  assert.ok(!fits(row, { ...open, only: "flagged" }));
  assert.ok(!fits({ ...row, purity: 0.4 }, { ...open, only: "above" }));
});

test("columns become rows", () => {
  const columns = { a: times(5, random), b: times(5, (i) => `row ${i}`) };
  assert.deepEqual(
    statRows(columns),
    times(5, (i) => ({ a: columns.a[i], b: columns.b[i] })),
  );
  assert.deepEqual(statRows({ a: [] }), []);
  assert.deepEqual(statRows({}), []);
});

test("statistics have the digits and units of their kind", () => {
  assert.equal(statNumber(null, 0.256), "25.6\u00a0%");
  assert.equal(statNumber(3, 0.25678), "0.257");
  assert.equal(statNumber(3, -0.1, true), "\u22120.100");
  assert.equal(statNumber(null, null), "–");
  assert.equal(statInterval(3, 0.1, 0.2), "0.100 to 0.200");
  assert.equal(statInterval(3, null, 0.2), null);
  assert.equal(statKey({ statistic: "purity", category: "pos" }), "purity.pos");
  assert.equal(statKey({ statistic: "dominance", category: "" }), "dominance");
});

test("a number that cannot be distinguished from its baselines says so", () => {
  const words = (shuffled, random_) => indistinctWords({ from_shuffled: shuffled, from_random: random_ });
  assert.equal(words("above", "above"), null);
  assert.equal(words("above", null), null);
  const different = [words("same", "same"), words("same", "above"), words("above", "same"), words("below", "above")];
  assert.equal(new Set(different).size, 4);
});

test("more or less than by chance is said only where an interval tells", () => {
  const { verdicts } = statistics.questions;
  const verdict = (shuffled, random_, values = {}) =>
    chanceVerdict({ value: 0.2, shuffled: 0.1, from_shuffled: shuffled, from_random: random_, ...values });
  const oneSentence = { value: 0.043, low: null, high: null, shuffled: 0.122 };
  assert.equal(verdict(null, null, oneSentence), verdicts.unknown);
  assert.equal(verdict(null, "same", { value: 1, shuffled: 1 }), verdicts.equal);
  assert.equal(verdict("above", null), verdicts.above);
  assert.equal(verdict("above", "below"), verdicts.belowRandom);
  assert.equal(verdict("below", "above"), verdicts.below);
  assert.match(verdict("same", "above"), /cannot tell: it could be shuffled/);
});

test("a curve grows by what is new and is smoothed without bias at its start", () => {
  const values = times(200, () => 2 + random());
  const part = (from, to) => ({
    step: times(to - from, (i) => from + i + 1),
    loss: values.slice(from, to),
    stride: 1,
    last: to,
  });
  const whole = new Curve();
  whole.append(part(0, 200));
  const grown = new Curve();
  const cut = 1 + below(198);
  grown.append(part(0, cut));
  const early = grown.smoothed("loss", 600);
  grown.append(part(cut, 200));
  assert.equal(grown.length, 200);
  assert.equal(grown.last, 200);
  assert.deepEqual(grown.smoothed("loss", 600), whole.smoothed("loss", 600));
  assert.deepEqual(whole.smoothed("loss", 600).slice(0, cut), early); // the drawn past never changes
  assert.ok(Math.abs(early[0] - values[0]) < 1e-12);
  assert.ok(whole.smoothed("loss", 600).every((value) => value >= 2 && value <= 3));
  assert.equal(whole.indexAt(77), 76);
  assert.equal(whole.indexAt(1000), 199);
});
