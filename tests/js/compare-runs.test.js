// Two runs of the same tokens: what is shown of which, and in which words.
import assert from "node:assert/strict";
import { test } from "node:test";
import { agreementSentences } from "../../assets/js/compare/run-agreement.js";
import { CompareRuns } from "../../assets/js/compare/runs.js";
import { base64, randomRun } from "./helpers.js";
import { answer, explorer, openPage, settled } from "./page.js";

openPage();

const config = { top_k: 1, window: 16, num_groups: 8 };
const partner = (run_id) => ({ run_id, name: "", centroids_name: "novels", created_at: "2026-01-01", config });

const beside = (made, layers = [3, 5, 9]) => ({
  layers: layers.map((layer) => ({ layer, names: [], overlap: 0.5, rand: 0.25 })),
  top: base64(new Uint8Array(layers.length * made.run.numTokens)),
  losses: [null, ...made.losses.focus],
  difference: { mean: 0, low: -1, high: 1, count: 39 },
});

async function compared(layers) {
  const made = randomRun();
  const app = explorer(made.run);
  const runs = new CompareRuns(app);
  runs.node.hidden = false;
  runs.update();
  await answer(app.asked[0], { runs: [partner("b"), partner("c")] });
  app.asked[1].answer(beside(made, layers));
  await answer(app.asked[2], { error: "no numbers" });
  return { app, runs };
}

test("what was shown of one run is not left under the name of another that cannot be shown", async () => {
  const { app, runs } = await compared();
  assert.ok(!runs.results.hidden);
  runs.load("c");
  app.asked[3].answer({ error: "it is gone" });
  await answer(app.asked[4], { error: "it is gone" });
  assert.match(runs.message.textContent, /it is gone/);
  assert.ok(runs.results.hidden && runs.numbers.hidden);
  runs.update();
  runs.selectionChanged();
  await settled();
  assert.ok(runs.results.hidden);
});

test("a layer that the other run has no groups in is said to have none", async () => {
  const { app, runs } = await compared([5, 9]);
  assert.match(runs.words.textContent, /no groups in layer 3/);
  const [own] = runs.texts.sides.own.children;
  const [other] = runs.texts.sides.other.children;
  assert.equal(own.dataset.shade, `g${app.run.top(0, 0)}`); // this run has its groups all the same
  assert.equal(other.dataset.shade, "none");
  assert.match(own.getAttribute("aria-label"), /no group there/);
  assert.ok(!own.classList.contains("fx-changed"));
});

test("sentences name the layers that both runs have, and a single one as one", () => {
  const made = randomRun();
  /** @param {number[]} layers */
  const words = (layers) => {
    const shown = { run: made.run, app: { layerIndex: 0 }, otherIndex: 0, changedPositions: () => [1] };
    return agreementSentences({ ...shown, answer: beside(made, layers) }).join(" ");
  };
  assert.match(words([3, 5, 9]), /Over all 3 layers/);
  assert.match(words([3, 5]), /Over the 2 layers both have/);
  assert.match(words([3]), /1 of 40 tokens \(by their top group\) is in another group/);
  assert.match(words([3]), /In the one layer both have/);
});

test("the two lines of agreement differ by more than their colour", async () => {
  const { runs } = await compared();
  const [overlap, rand] = runs.chart.fxRequested.data;
  assert.notEqual(overlap.line.dash, rand.line.dash);
  assert.notEqual(overlap.marker.symbol, rand.marker.symbol);
});
