import assert from "node:assert/strict";
import { test } from "node:test";
import { settled } from "./page.js";
import { BudgetTrial } from "../../assets/js/sparsity/budget.js";
import { randomRun } from "./helpers.js";

test("a layer whose groups did not come says so, and the one before is still counted", async () => {
  const { run, answers } = randomRun({ numTokens: 20, layerIds: [3, 5], numGroups: 2 });
  Object.assign(run.config, { top_k: 1 });
  Object.assign(run, { quality: { delta_mean: 0.1, delta_low: 0, delta_high: 0.2 } });
  const orders = { 3: Buffer.from(new Uint8Array(40)).toString("base64") };
  answers.group_orders = ({ layer }) => (layer === 3 ? { orders, fixed: {} } : { error: "the disk is gone" });
  answers.compare_grid = () => ({ cells: [] });
  const app = { run, layerIndex: 0 };
  globalThis.requestAnimationFrame = (draw) => draw();
  const budget = new BudgetTrial(app, () => {});
  budget.update();
  budget.set({ ...budget.trial.settings, window: 8 });
  await settled();
  assert.match(budget.counts.textContent, /^Layer 3 keeps /);
  app.layerIndex = 1;
  budget.update();
  await settled();
  assert.match(budget.counts.textContent, /the disk is gone/);
  app.layerIndex = 0;
  budget.update();
  assert.match(budget.counts.textContent, /^Layer 3 keeps /);
});
