// Focus against full attention by length: what is said of what was measured.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CompareLengths } from "../../assets/js/compare/lengths.js";
import { randomRun } from "./helpers.js";
import { answer, explorer, openPage } from "./page.js";

openPage();

const point = (tokens, more = {}) => ({
  tokens,
  top_k: 1,
  window_size: 4,
  full_median: 4,
  full_low: 3.9,
  full_high: 4.1,
  focus_median: 2,
  focus_low: 1.9,
  focus_high: 2.1,
  routing_median: 0.1,
  retained_pairs: 0.5,
  repeats: 5,
  backend: "torch",
  device: "cpu",
  dtype: "float32",
  threads: 2,
  ...more,
});

async function words(points, kind) {
  const app = explorer(randomRun().run);
  const part = new CompareLengths(app);
  part.node.hidden = false;
  part.update();
  const crossing = { kind, tokens: null, below: null, above: null, clear: true };
  await answer(app.asked[0], { layers: { 3: { points, crossing } }, job: null });
  return part.verdict.textContent;
}

test("a single measured length is no range", async () => {
  assert.match(await words([point(256)], "from the start"), /Focus is faster at 256 tokens, the only measured length/);
  assert.match(await words([point(256)], "never"), /not faster at 256 tokens, the only measured length; nothing/);
  assert.match(await words([point(256), point(512)], "from the start"), /every measured length, 256 to 512 tokens/);
});

test("lengths measured on several machines are not all said to be of the last one", async () => {
  const said = await words([point(256, { device: "cuda", dtype: "bfloat16" }), point(512, { threads: 1 })], "never");
  assert.match(said, /5 repeats, .*cuda \/ cpu, bfloat16 \/ float32, 2 threads \/ 1 thread, torch backend\./);
});
