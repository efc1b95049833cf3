// What the parts of the Compare view ask, and what they make of answers that come late or refuse.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CompareGeneration } from "../../assets/js/compare/generation.js";
import { CompareHeads } from "../../assets/js/compare/heads.js";
import { CompareLinks } from "../../assets/js/compare/missing-links.js";
import { randomRun } from "./helpers.js";
import { answer, explorer, openPage, settled } from "./page.js";

openPage();

const job = (state, kind, more = {}) => ({
  kind,
  run_id: "run",
  state,
  stage: "Reading",
  fraction: 0.5,
  message: "",
  seconds_left: null,
  ...more,
});

const explained = (token) => ({
  token,
  measured_at: "",
  nll_full: 1,
  nll_focus: 2,
  nll_together: null,
  dropped_pairs: 10,
  links: [],
});

function open(Part) {
  const app = explorer(randomRun().run);
  const part = new Part(app);
  part.node.hidden = false;
  part.update();
  return { app, part };
}

test("an answer that was overtaken by that to a newer question does not replace it", async () => {
  const { app, part } = open(CompareLinks);
  part.choose(5);
  part.choose(9);
  const [, first, second] = app.asked;
  await answer(second, { tokens: [5, 9], explained: explained(9), job: null });
  await answer(first, { tokens: [5, 9], explained: explained(5), job: null });
  assert.equal(part.token, 9);
  assert.equal(part.explained.token, 9);
  assert.match(part.verdict.textContent, /token 9/);
});

test("work that was started is watched although another question was asked meanwhile", async () => {
  const { app, part } = open(CompareHeads);
  const nothing = { heads: [], num_tokens: null, nll_full: null, nll_focus: null };
  await answer(app.asked[0], { ...nothing, job: null });
  part.start({});
  part.update(); // another layer
  const [, start, state] = app.asked;
  await answer(state, { ...nothing, job: null });
  await answer(start, { ...nothing, job: job("running", "heads") });
  assert.equal(app.asked[3].what, "compare_heads");
  await answer(app.asked[3], { ...nothing, job: job("running", "heads") });
  assert.ok(part.busy && part.startButton.disabled);
  clearTimeout(part.timer);
});

test("what was asked before work started does not end the watch of it", async () => {
  const { app, part } = open(CompareHeads);
  const nothing = { heads: [], num_tokens: null, nll_full: null, nll_focus: null };
  await answer(app.asked[0], { ...nothing, job: null });
  part.update();
  part.start({});
  const [, state, start] = app.asked;
  await answer(start, { ...nothing, job: job("running", "heads") });
  await answer(state, { ...nothing, job: null });
  assert.ok(part.busy && part.startButton.disabled);
  clearTimeout(part.timer);
});

test("a refusal is said although another question was asked meanwhile", async () => {
  const { app, part } = open(CompareLinks);
  await answer(app.asked[0], { tokens: [], explained: null, job: null });
  const started = part.start({});
  part.choose(7);
  const [, start, state] = app.asked;
  await answer(state, { tokens: [], explained: null, job: null });
  await answer(start, { error: "this cannot be explained" });
  assert.match(part.line.problem.textContent, /cannot be explained/);
  assert.equal(await started, false);
  await settled();
  assert.ok(!part.startButton.disabled);
});

test("what was written stays while a new text is refused", async () => {
  const app = explorer(randomRun().run);
  app.run.text = () => "prompt";
  const part = new CompareGeneration(app);
  part.node.hidden = false;
  part.update();
  const side = { text: "ab", ids: [5, 6], pieces: ["a", "b"], groups: [{ 3: 1 }, { 3: 2 }], ms: [1, 2] };
  const sides = { full: side, focus: { ...side, ids: [5, 7] }, prompt_tokens: 1 }; // 6 and 7 are written alike
  await answer(app.asked[0], { sides, job: null });
  assert.equal(part.divergence.textContent, "The first token is the same.");
  assert.match(part.notes.full.textContent, /after 1 prompt token$/);
  part.submit();
  await answer(app.asked[1], { error: "the prompt is empty" });
  assert.match(part.line.problem.textContent, /the prompt is empty/);
  assert.equal(part.bodies.full.textContent, "ab");
  part.submit();
  await answer(app.asked[2], { sides: { ...sides, full: { ...side, groups: [] } }, job: null });
  const [token] = part.bodies.full.querySelectorAll(".fx-pair-token");
  assert.equal(token.dataset.shade, "none"); // written again: its groups are not known yet
  assert.equal(token.dataset.label, undefined);
});

test("work that is stopped is said to be kept only where it is", async () => {
  const { part } = open(CompareHeads);
  part.line.update(job("stopped", "heads"), true);
  assert.match(part.line.words.textContent, /Stopped\. Nothing of it is kept\./);
  part.line.update(job("stopped", "grid"), true);
  assert.match(part.line.words.textContent, /What was measured is kept/);
});
