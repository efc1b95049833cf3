import assert from "node:assert/strict";
import { test } from "node:test";
import { later, settled } from "./page.js";
import { LinkLists } from "../../assets/js/sparsity/links.js";
import { randomRun } from "./helpers.js";

const answerOf = (query) => ({ dropped: [[0, query, 1, 0.5, 0.1]], kept: [] });

function listsOf() {
  const questions = [];
  const { run } = randomRun();
  const app = {
    run,
    layerIndex: 0,
    selection: null,
    tooltip: {},
    isOpen: () => true,
    request(what, details) {
      const question = { ...details, ...later() };
      questions.push(question);
      return question.promise;
    },
  };
  const lists = new LinkLists(app);
  lists.setHeads(2);
  const asked = async () => {
    lists.update();
    await new Promise((resolve) => setTimeout(resolve, 150)); // longer than the pause of the loader
  };
  return { app, lists, questions, asked };
}

test("the choice of a head does not bring back the links of the layer before", async () => {
  const { app, lists, questions, asked } = listsOf();
  await asked();
  questions[0].answer(answerOf(30));
  await settled();
  assert.equal(lists.lists.dropped.querySelectorAll(".fx-link")[0].dataset.query, "30");
  app.layerIndex = 1;
  await asked();
  lists.chosen("0");
  assert.ok(lists.lists.dropped.classList.contains("fx-stale"));
  questions[1].answer(answerOf(20));
  await settled();
  assert.equal(lists.lists.dropped.querySelectorAll(".fx-link")[0].dataset.query, "20");
  assert.ok(!lists.lists.dropped.classList.contains("fx-stale"));
});

test("links are asked of the run they are shown for", async () => {
  const { app, questions, asked } = listsOf();
  await asked();
  assert.deepEqual([questions[0].run, questions[0].layer], [app.run.info.run_id, 3]);
});

test("a head without a link is not said to be the whole layer", async () => {
  const { lists, questions, asked } = listsOf();
  await asked();
  questions[0].answer(answerOf(30));
  await settled();
  assert.equal(lists.lists.kept.textContent, "This layer keeps no link beyond window and sinks.");
  lists.chosen("1");
  assert.equal(lists.lists.dropped.textContent, "This head drops no link.");
  assert.equal(lists.lists.kept.textContent, "This head keeps no link beyond window and sinks.");
});
