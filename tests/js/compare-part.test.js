// What the parts of the Compare view ask, and what they make of answers that come late or refuse.
import assert from "node:assert/strict";
import { test } from "node:test";
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
