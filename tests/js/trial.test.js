// A run's mask under other settings: heads with settings of their own keep them, full attention stays, layers slide.
import assert from "node:assert/strict";
import { test } from "node:test";
import { pairCode } from "../../assets/js/core/pair-rule.js";
import { KeptPairs } from "../../assets/js/sparsity/arrangement.js";
import { Trial } from "../../assets/js/sparsity/trial.js";
import { below, times } from "./helpers.js";

const TOKENS = 40;

const GROUPS = 6;

const order = times(2, () =>
  times(TOKENS, () => {
    const first = below(GROUPS);
    return times(GROUPS, (rank) => (first + rank * 5) % GROUPS);
  }),
);

const layers = [
  {
    retained_pairs: 0.123,
    sliding_window: null,
    parts: [
      { heads: [0, 2], full: false, top_k: 1, window: 4, retained_pairs: 0.1 },
      { heads: [1], full: false, top_k: 3, window: 9, retained_pairs: 0.2 },
      { heads: [3], full: true, top_k: null, window: 4, retained_pairs: 1 },
    ],
  },
  {
    retained_pairs: 0.234,
    sliding_window: 11,
    parts: [{ heads: [0, 1, 2, 3], full: false, top_k: 1, window: 4, retained_pairs: 0.234 }],
  },
];

const run = {
  numTokens: TOKENS,
  numGroups: GROUPS,
  numLayers: 2,
  layerIds: [3, 7],
  layers,
  config: { num_groups: GROUPS, top_k: 1, window: 4, num_sinks: 2 },
  top: (layerIndex, pos) => order[layerIndex][pos][0],
};

const answer = {
  orders: Object.fromEntries(
    [3, 7].map((layer, index) => [layer, Buffer.from(order[index].flat()).toString("base64")]),
  ),
  fixed: { 3: [], 7: [[5, (1 << GROUPS) - 1, 0]] },
};

const share = (layerIndex, settings, growth) =>
  shareOf(layerIndex, settings, growth, layers[layerIndex].sliding_window, answer.fixed);

const NONE = { 3: [], 7: [] };

function shareOf(layerIndex, { topK, window, sinks }, [first, last] = [1, 1], sliding = null, fixed = NONE) {
  const sets = order[layerIndex].map((groups) => new Set(groups.slice(0, topK)));
  for (const [pos] of fixed[run.layerIds[layerIndex]]) sets[pos] = new Set(times(GROUPS, (group) => group));
  let count = 0;
  for (let query = 0; query < TOKENS; query += 1) {
    const reached = Math.floor((window * Math.max(first, Math.min(query, last))) / first);
    for (let key = Math.max(0, query - (sliding ?? TOKENS) + 1); key <= query; key += 1) {
      const shared = [...sets[query]].some((group) => sets[key].has(group));
      if (pairCode(shared, query - key <= reached, key < sinks) !== 0) count += 1;
    }
  }
  return count / ((TOKENS * (TOKENS + 1)) / 2);
}

const near = (actual, expected) => assert.ok(Math.abs(actual - expected) < 1e-12, `${actual} is not ${expected}`);

test("under the run's own settings the stored shares are shown and the run itself is drawn", () => {
  const trial = new Trial(run);
  assert.ok(trial.isOwn);
  assert.deepEqual(trial.keptOfLayers(), [0.123, 0.234]);
  assert.equal(trial.pictured(0), run);
});

test("nothing is counted before the groups are here", () => {
  const trial = new Trial(run);
  trial.settings = { topK: 2, window: 4, sinks: 2 };
  assert.equal(trial.kept(0), null);
  assert.equal(trial.meanKept(), null);
  assert.equal(trial.pictured(0), run);
  trial.take({ orders: { 3: answer.orders[3] }, fixed: { 3: [] } });
  assert.ok(trial.kept(0) !== null && trial.kept(1) === null && trial.keptOfLayers() === null);
});

for (const growth of [undefined, [8, 30]])
  test(`heads follow the sliders but for those with settings of their own, pair by pair, ${growth}`, () => {
    const trial = new Trial({ ...run, config: { ...run.config, window_growth: growth } });
    trial.take(answer);
    for (const settings of [
      { topK: 2, window: 4, sinks: 2 },
      { topK: 1, window: 16, sinks: 2 },
      { topK: 4, window: 0, sinks: 0 },
      { topK: 1, window: 4, sinks: 9 },
    ]) {
      trial.settings = settings;
      const own = share(0, { topK: 3, window: 9, sinks: settings.sinks }, growth);
      near(trial.kept(0), (2 * share(0, settings, growth) + own + 1) / 4);
      near(trial.kept(1), share(1, settings, growth));
      near(trial.meanKept(), (trial.kept(0) + trial.kept(1)) / 2);
      near(new KeptPairs(trial.pictured(0), 0, 0).share, share(0, settings, growth));
      near(new KeptPairs(trial.pictured(0), 0, 1).share, own);
      near(new KeptPairs(trial.pictured(0), 0, 2).share, 1);
      near(new KeptPairs(trial.pictured(1), 1, 0).share, share(1, settings, growth));
    }
  });

test("a head that the budget gives a window alone follows the top-k; one given the usual top-k keeps it", () => {
  const parts = [
    { heads: [0, 1, 2], query_heads: true, full: false, top_k: 1, window: 4, retained_pairs: 0.1 },
    { heads: [3], query_heads: true, full: false, top_k: 1, window: 9, retained_pairs: 0.2 },
    { heads: [4, 5], query_heads: true, full: false, top_k: 3, window: 4, retained_pairs: 0.3 },
  ];
  const budget = [
    { layer: 3, query_head: 1, top_k: 1 },
    { layer: 3, query_head: 3, window: 9 },
    { layer: 3, head: 2, top_k: 3 }, // query heads 4 and 5 share it, as layer 7 tells
    { layer: 7, top_k: 1, window: 4 },
  ];
  const alike = { ...layers[1], layer: 7, sliding_window: null, parts: [{ ...layers[1].parts[0], heads: [0, 1, 2] }] };
  const trial = new Trial({
    ...run,
    layers: [{ retained_pairs: 0.2, layer: 3, sliding_window: null, parts }, alike],
    config: { ...run.config, budget },
  });
  trial.take({ ...answer, fixed: { 3: [], 7: [] } });
  for (const settings of [
    { topK: 2, window: 4, sinks: 2 },
    { topK: 1, window: 16, sinks: 2 },
    { topK: 5, window: 0, sinks: 1 },
  ]) {
    trial.settings = settings;
    const { topK, window, sinks } = settings;
    const heads = [
      [topK, window],
      [1, window],
      [topK, window],
      [topK, 9],
      [3, window],
      [3, window],
    ];
    const shares = heads.map(([k, w]) => shareOf(0, { topK: k, window: w, sinks }));
    near(trial.kept(0), shares.reduce((a, b) => a + b) / heads.length);
    near(trial.kept(1), shareOf(1, { topK: 1, window: 4, sinks }));
    near(new KeptPairs(trial.pictured(0), 0, 1).share, shares[3]);
  }
});

test("windows are powers of two below the length of the text, and the run's own", () => {
  assert.deepEqual(new Trial(run).windows, [0, 4, 8, 16, 32]);
  const other = { ...run, config: { ...run.config, window: 100 } };
  assert.deepEqual(new Trial(other).windows, [0, 4, 8, 16, 32, 100]);
});
