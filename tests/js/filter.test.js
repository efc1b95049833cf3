import assert from "node:assert/strict";
import { test } from "node:test";
import "./page.js";
import { fetchGroupNames } from "../../assets/js/core/group-names.js";
import { TokenFilter } from "../../assets/js/tokens/filter.js";
import { randomRun, times } from "./helpers.js";

function filterOf(answers = {}) {
  const { run, answers: known } = randomRun({ layerIds: [2, 4], numGroups: 3 });
  Object.assign(known, answers);
  const app = { run, layerIndex: 0, tooltip: {}, request: async (what) => answers[what]() };
  let changes = 0;
  const filter = new TokenFilter(app, () => (changes += 1));
  filter.reset();
  return { app, filter, changes: () => changes };
}

test("a question that fails takes back its own choice, and the text follows", async () => {
  const classes = Buffer.from(Uint8Array.from({ length: 40 }, (_, pos) => pos % 2)).toString("base64");
  const { filter, changes } = filterOf({
    word_classes: () => ({ names: ["name", "content"], classes }),
    prediction_changes: () => ({ stored: false, codes: "" }),
  });
  filter.kind.value = "name";
  await filter.loadKinds();
  filter.prediction.value = "changed";
  await filter.loadKinds();
  assert.match(filter.problem.textContent, /stored without predictions/);
  assert.deepEqual([filter.kind.value, filter.prediction.value], ["name", ""]);
  assert.equal(filter.summary.textContent, "Filter: 20 of 40 tokens");
  assert.equal(changes(), 2);
});

test("the names of the groups to choose from are those of the layer on screen", async () => {
  const names = [0, 1].map((layer) => times(3, (group) => ({ name: `name ${layer}.${group}`, given: null })));
  const { app, filter } = filterOf({ group_names: () => ({ names }) });
  const words = () => filter.group.children.map((option) => option.textContent);
  assert.deepEqual(words(), ["any", "A", "B", "C"]);
  await fetchGroupNames(app);
  filter.nameGroups();
  assert.deepEqual(words(), ["any", "A · name 0.0", "B · name 0.1", "C · name 0.2"]);
  app.layerIndex = 1;
  filter.nameGroups();
  assert.deepEqual(words(), ["any", "A · name 1.0", "B · name 1.1", "C · name 1.2"]);
});
