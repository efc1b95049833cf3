// The Groups view as names, runs and layers change under it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { randomRun, times } from "./helpers.js";
import { buttonCalled, charts, document, explorer as explorerOf, later, root, settled } from "./page.js";
import { fetchGroupNames, groupName } from "../../assets/js/core/group-names.js";
import { Tooltip } from "../../assets/js/core/tooltip.js";
import { LayerAgreement } from "../../assets/js/groups/agreement.js";
import { GroupFinder } from "../../assets/js/groups/finder.js";
import { place } from "../../assets/js/groups/flow-layout.js";
import { GroupName } from "../../assets/js/groups/name.js";
import { StatOverview } from "../../assets/js/statistics/overview.js";
import { groups as text } from "../../assets/js/strings/groups.js";

const named = (name) => ({ name, given: null, evidence: [] });

/** An explorer around a run of random groups; `answers` by what is asked, functions of the details. */
function explorer(answers = {}, shape = {}) {
  const { run } = randomRun({ numTokens: 12, layerIds: [3, 5, 9], numGroups: 2, ...shape });
  run.groups = run.layerIds.map(() => times(run.numGroups, () => ({ tokens: [] })));
  return explorerOf(run, {
    root,
    tooltip: new Tooltip(root),
    views: {},
    setLayer() {},
    select() {},
    request: async (what, details) => answers[what](details),
  });
}

const names = (run, random = null) => ({
  names: run.layerIds.map(() => [named("mostly nouns"), named("mostly verbs")]),
  random: run.layerIds.map(() => random),
});

const GROUP = {
  tokens: 6,
  share: 0.5,
  balance: 1,
  flags: [],
  top_class: 0,
  purity: 0.5,
  base_rate: 0.5,
  null_mean: 0.4,
  null_high: 0.6,
  characteristic: [],
  attention_mass: null,
  confidence: 0.9,
  entropy: 0.1,
};
const payload = (run) => ({
  groups: run.layerIds.map(() => times(run.numGroups, () => GROUP)),
  class_names: ["name"],
  attention_tokens: null,
  draws: 10,
  seed: 0,
});

test("a group that was renamed has its new name in the table of all groups", async () => {
  const app = explorer({
    group_names: () => names(app.run),
    name_group: ({ name }) => ({ ...named("mostly nouns"), given: name }),
  });
  await fetchGroupNames(app);
  const finder = new GroupFinder(app);
  const data = payload(app.run);
  finder.update(data);
  assert.equal(finder.rows[0].name, "mostly nouns");
  const { node } = new GroupName(app, 0);
  await buttonCalled(node, text.names.rename).click();
  node.querySelector("input").value = "my own";
  await node.querySelector("form").dispatch("submit");
  finder.update(data);
  assert.equal(finder.rows[0].name, "my own");
  assert.equal(groupName(app.run, 0, 0), "my own");
});

test("the keyboard stays on a group's name when it was saved or left as it was", async () => {
  const app = explorer({
    group_names: () => names(app.run),
    name_group: ({ name }) => ({ ...named(""), given: name }),
  });
  await fetchGroupNames(app);
  const { node } = new GroupName(app, 0);
  const rename = () => buttonCalled(node, text.names.rename);
  const leaves = [
    () => node.querySelector("form").dispatch("submit"),
    () => buttonCalled(node, text.names.cancel).click(),
    () => node.querySelector("form").dispatch("keydown", { key: "Escape" }),
  ];
  for (const leave of leaves) {
    await rename().click();
    await leave();
    assert.equal(document.activeElement, rename());
  }
});

test("names are asked for again once random centroids were measured", async () => {
  let measured = null;
  const app = explorer({ group_names: () => names(app.run, measured), statistics_job: () => ({ job: null }) });
  await fetchGroupNames(app);
  measured = 0.4;
  assert.equal(await fetchGroupNames(app), false);
  assert.equal(await fetchGroupNames(app, true), true);
  let asked = 0;
  app.nameGroups = (anew) => (asked += Number(anew));
  const overview = new StatOverview(app, { forget() {}, update() {} });
  Object.assign(overview, { shown: app.run, answer: { missing: {}, about: { notes: [] } }, live: true });
  app.request = async () => ({ job: { state: "done", message: "" } });
  await overview.request("statistics_job");
  assert.equal(asked, 1);
});

const agreementOf = (count) => ({
  agreement: times(count, () => times(count, () => 0.5)),
  shuffled: [0, 0.1],
  pairs: count - 1,
  seed: 0,
});

test("the agreement of a run's layers is gone while another run's is worked out, fails, or has one layer", async () => {
  const answers = [agreementOf(3), later().promise, { error: "the server was busy" }];
  const app = explorer({ agreement: () => answers.shift() });
  const agreement = new LayerAgreement(app, () => {});
  const isShown = () => charts.has(agreement.plot) && agreement.plot.closest("[hidden]") === null;
  await agreement.update();
  assert.equal(isShown(), true);
  app.run = explorer().run;
  agreement.update();
  await settled();
  assert.equal(isShown(), false);
  app.run = explorer().run;
  await agreement.update();
  assert.match(agreement.status.textContent, /the server was busy/);
  assert.equal(isShown(), false);
  answers.push(agreementOf(3));
  await agreement.update();
  assert.equal(isShown(), true);
  app.run = explorer({}, { layerIds: [7] }).run;
  await agreement.update();
  assert.equal(agreement.status.textContent, text.agreement.single);
  assert.equal(isShown(), false);
});

test("blocks of the flow have most of its height, also where there are 64 groups", () => {
  for (const numGroups of [2, 8, 64]) {
    const { run } = randomRun({ numTokens: 2000, numGroups });
    const [{ blocks }] = place(run, [0], [], 600);
    const heights = blocks.reduce((sum, { height }) => sum + height, 0);
    assert.ok(heights > 200, `${numGroups} groups have ${heights} pixels`);
    assert.ok(Math.max(...blocks.map(({ y, height }) => y + height)) <= 440);
  }
});

test("the table of all groups says in which direction texts and letters are sorted", () => {
  const app = explorer();
  const finder = new GroupFinder(app);
  finder.update(payload(app.run));
  const said = (column) => finder.headings[column].cell.getAttribute("aria-sort");
  assert.equal(said("purity"), "descending");
  finder.rank("class");
  assert.equal(said("class"), "ascending");
  finder.rank("class");
  assert.equal(said("class"), "descending");
  finder.rank("group");
  assert.deepEqual(
    finder.lines.slice(0, 2).map(({ row }) => row.group),
    [0, 1],
  );
  assert.equal(said("group"), "ascending");
  finder.rank("share");
  assert.equal(said("share"), "descending");
});

test("one token is not called tokens", () => {
  assert.equal(text.cards.hit("1", "1"), "holds the selected token");
  assert.equal(text.cards.hit("0", "1"), "does not hold the selected token");
  assert.equal(text.cards.hit("1", "3"), "1 of the 3 selected tokens");
  assert.equal(text.flow.linkShares("1", "A", "50 %", "B", "20 %"), "1 token: 50 % of group A, 20 % of group B");
});
