// The chart of every layer's pairs: what it shows beside them, and of which run.
import assert from "node:assert/strict";
import { test } from "node:test";
import { charts, explorer, settled } from "./page.js";
import { LayerShares } from "../../assets/js/sparsity/layer-shares.js";
import { randomRun } from "./helpers.js";

const PAIRS = { local_only: 30, group_only: 20, local_and_group: 0, sink_only: 0, dropped: 50 };

function opened() {
  const make = () => {
    const { run } = randomRun();
    run.layers = run.layers.map((layer) => ({ ...layer, pairs: PAIRS }));
    return run;
  };
  const app = explorer(make());
  const budget = { trial: { isOwn: true, keptOfLayers: () => [0.1, 0.2, 0.3] } };
  return { app, budget, make, chart: new LayerShares(app, budget) };
}

const names = async (chart) => {
  await settled();
  return charts.get(chart.node).data.map(({ name, mode }) => name ?? mode);
};

test("nulls stand beside the bars of their run alone, settings that are tried while they are tried", async () => {
  const { app, budget, make, chart } = opened();
  chart.draw();
  const bars = await names(chart);
  assert.equal(bars.length, Object.keys(PAIRS).length - 1);
  chart.takeNulls({ layer_shuffled: [0.4, 0.4, 0.4], layer_window_only: [0.3, 0.3, 0.3] });
  assert.deepEqual(await names(chart), [...bars, "lines", "markers"]);
  budget.trial.isOwn = false;
  app.run = make();
  chart.draw();
  assert.deepEqual(await names(chart), [...bars, "markers"]);
  assert.deepEqual(charts.get(chart.node).data.at(-1).x, [0.1, 0.2, 0.3]);
  assert.equal(chart.trialNote.hidden, false);
});
