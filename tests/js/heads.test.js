import assert from "node:assert/strict";
import { test } from "node:test";
import {
  budgetChip,
  budgetGroups,
  headCount,
  isUsual,
  layerWords,
  partOf,
  partOfQueryHead,
  partTitle,
  shortestWindow,
  someFull,
} from "../../assets/js/core/heads.js";
import "./page.js";
import { App } from "../../assets/js/shell/app.js";
import { maskHeads, maskQuestion } from "../../assets/js/shell/export-mask.js";
import { keptFarWords } from "../../assets/js/sparsity/attention.js";
import { pairs } from "../../assets/js/strings/sparsity.js";

const config = { top_k: 1, window: 64, budget: [] };

/** @param {number[]} heads @param {object} setting */
const part = (heads, setting = {}) => ({
  heads,
  query_heads: false,
  top_k: 1,
  window: 64,
  full: false,
  retained_pairs: 0.5,
  ...setting,
});
const full = { full: true, top_k: null };

test("parts are titled by their heads, of either kind, and their setting", () => {
  assert.equal(partTitle(part([0, 2])), "heads 0, 2: top-k 1, window 64");
  assert.equal(partTitle(part([4], { query_heads: true, top_k: 0, window: 9 })), "query head 4: no groups, window 9");
  assert.equal(partTitle(part([1], full)), "head 1: full attention");
  assert.ok(isUsual(part([0]), config));
  assert.ok(!isUsual(part([0], { top_k: 0 }), config));
});

test("a layer's setting is that of each part of its heads, and how windows grow where a head has one", () => {
  const growing = { ...config, window_growth: [1024, 8192] };
  const parts = [part([0, 2], { top_k: 0, window: 256 }), part([1], full)];
  assert.equal(layerWords(parts, config), "Heads 0, 2: no groups, window 256; head 1: full attention");
  assert.equal(
    layerWords([part([0, 1, 2], { top_k: 2 })], growing),
    "Top-k 2, window 64; windows grow from token 1,024 to 8,192",
  );
  assert.equal(layerWords([part([0, 1, 2], full)], growing), "Full attention");
});

test("the mask drops nothing within the shortest window of heads that have one", () => {
  const layers = [{ parts: [part([0], full), part([1])] }, { parts: [part([0], { window: 9 }), part([1])] }];
  assert.equal(shortestWindow({ config, layers }), 9);
  assert.equal(shortestWindow({ config, layers: [{ parts: [part([0, 1], { window: 9, ...full })] }] }), 64);
});

test("distant pairs are said to be kept by groups alone where no head attends fully", () => {
  const { far } = pairs.distance;
  for (const [parts, words] of [
    [[part([0]), part([1], full)], "groups, and heads with full attention, keep 9 %"],
    [[part([0]), part([1], { top_k: 0 })], "the groups keep 9 %"],
  ])
    assert.ok(far("9 %", "8 %", someFull([{ parts: [part([0, 1])] }, { parts }])).includes(words));
});

test("a budget is counted in query heads where some layer tells them apart", () => {
  const byKey = [
    { layer: 0, parts: [part([0, 2]), part([1], full)] },
    { layer: 1, parts: [part([0, 1, 2], { window: 9 })] },
    { layer: 2, parts: [part([0, 1, 2])] },
  ];
  assert.equal(budgetChip({ config, layers: byKey }), "budget: 1 head in full, 1 layer set apart");
  const query = { query_heads: true };
  const layers = [...byKey, { layer: 3, parts: [part([0, 1, 2, 3, 4], query), part([5], { ...query, top_k: 0 })] }];
  assert.equal(headCount(layers[3].parts), 6);
  assert.equal(budgetChip({ config, layers }), "budget: 2 query heads in full, 1 layer and 1 query head set apart");
  const groups = budgetGroups({ config, layers });
  assert.deepEqual(
    groups.map(({ setting }) => setting),
    ["full attention", "top-k 1, window 9", "no groups, window 64"],
  );
  assert.deepEqual(groups[2].heads, [{ layer: 3, heads: [5], query: true }]);
});

test("the part of a head is found, and without one the first that is not in full", () => {
  const parts = [part([1], full), part([0, 2])];
  const found = [2, 1, null, 7].map((head) => partOf([{ parts }], parts, head));
  assert.deepEqual(found, [1, 0, 1, 1]);
});

const QUERY = { query_heads: true };

/** Two key-value heads of three query heads each: layers that number these, those, and have no heads apart. */
const MIXED = [
  { layer: 0, parts: [part([0, 1, 2, 3], QUERY), part([4], { ...QUERY, ...full }), part([5], { ...QUERY, top_k: 0 })] },
  { layer: 1, parts: [part([0], full), part([1])] },
  { layer: 2, parts: [part([0, 1])] },
];

test("the head whose mask is shown is the same one in layers that number heads otherwise", () => {
  const app = { run: { layers: MIXED }, tooltip: { hide() {} }, refresh() {}, writeAddress() {} };
  const part = () => Object.getOwnPropertyDescriptor(App.prototype, "part").get.call(app);
  const setPart = (...choice) => App.prototype.setPart.call(app, ...choice);
  const parts = (layerIndex) => {
    app.layerIndex = layerIndex;
    return part();
  };
  app.layerIndex = 0;
  setPart(2);
  assert.deepEqual([app.head, parts(0), parts(1), parts(2)], [5, 2, 1, 0], "query head 5 is in key-value head 1");
  app.layerIndex = 1;
  setPart(1);
  assert.deepEqual([app.head, parts(1), parts(0)], [3, 1, 0], "query head 3 is the first in key-value head 1");
  app.layerIndex = 0;
  setPart(1, 4);
  assert.deepEqual([app.head, parts(0), parts(1)], [4, 1, 1]);
  app.run = { layers: MIXED.slice(1) };
  app.layerIndex = 0;
  setPart(1);
  assert.deepEqual([app.head, parts(0), parts(1)], [1, 1, 0], "no layer tells query heads apart");
});

test("a mask to export is of the same head in each layer, which the server takes as that layer numbers it", () => {
  const mask = { tokens: 9, layers: MIXED };
  const question = (maskLayer, maskHead) => maskQuestion(mask, { maskLayer, maskHead, maskFormat: "csv" }).head;
  assert.deepEqual([question("0", "4"), question("1", "4"), question("1", "2"), question("2", "4")], [4, 1, 0, null]);
  assert.deepEqual([question("0", ""), question("1", "")], [0, 1]);
  const { chosen, heads } = maskHeads(mask, { maskLayer: "1", maskHead: "4" });
  assert.equal(chosen, "3");
  assert.deepEqual(heads, [
    ["0", "head 0: full attention"],
    ["3", "head 1: top-k 1, window 64"],
  ]);
});

test("the part of a query head is found, also where parts number key-value heads", () => {
  const parts = [part([0, 2]), part([1], full)];
  const found = [...Array(9).keys()].map((head) => partOfQueryHead(parts, head, 9).full);
  assert.deepEqual(found, [false, false, false, true, true, true, false, false, false]);
  const query = [part([0, 1, 2, 5], { query_heads: true }), part([3, 4], { query_heads: true, ...full })];
  assert.deepEqual([2, 3, 4, 5].map((head) => partOfQueryHead(query, head, 6).full), [false, true, true, false]);
  const old = part([]); // of a run whose heads were not numbered
  assert.equal(partOfQueryHead([old], 7, 9), old);
});

test("far pairs are kept by groups, by full attention, or by one of both", () => {
  assert.equal(keptFarWords([part([0])]), "same group");
  assert.equal(keptFarWords([part([0], full)]), "full attention");
  assert.equal(keptFarWords([part([0]), part([1], full)]), "same group or full attention");
});
