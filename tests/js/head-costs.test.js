// What the mask costs head by head: a cell leads to its head.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CompareHeads } from "../../assets/js/compare/heads.js";
import { randomRun } from "./helpers.js";
import { answer, explorer, openPage } from "./page.js";

openPage();

test("a cell leads to its own head, also in a layer whose heads are alike", async () => {
  const { run } = randomRun();
  run.layers[1].parts = [{ heads: [0, 1, 2, 3], query_heads: false, full: false, top_k: 1, window: 4 }];
  const opened = [];
  const app = explorer(run, {
    setLayer: (index) => opened.push(index),
    setPart: (part, head) => opened.push([part, head]),
  });
  const part = new CompareHeads(app);
  part.node.hidden = false;
  part.update();
  const heads = [0, 1, 2, 3].map((head) => ({ layer: 5, head, estimated: -0.1, nll: null, dropped: null }));
  await answer(app.asked[0], { heads, num_tokens: 40, nll_full: 1, nll_focus: 1.1, job: null });
  part.go(heads[2]);
  assert.deepEqual(opened, [1, [0, 2]]);
});
