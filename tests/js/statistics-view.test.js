// The Statistics view while answers come late, fail, or come after their view was left.
import assert from "node:assert/strict";
import { test } from "node:test";
import { randomRun } from "./helpers.js";
import { buttonCalled, document, explorer, later, root, settled } from "./page.js";
import { Tooltip } from "../../assets/js/core/tooltip.js";
import { selectGroup } from "../../assets/js/core/selection.js";
import { common } from "../../assets/js/strings/common.js";
import { statistics as text } from "../../assets/js/strings/statistics.js";
import { StatisticsView } from "../../assets/js/statistics/view.js";

/** An explorer with only a Statistics view; `answers` by what is asked, functions of the details. */
function opened(answers) {
  const { run } = randomRun({ numTokens: 12, layerIds: [3, 5, 9], numGroups: 2 });
  const app = explorer(run, {
    root,
    tooltip: new Tooltip(root),
    closed: false,
    selected: [],
    isOpen: () => !app.closed,
    toggleSelection: (selection) => app.selected.push(selection.origin),
    request: async (what, details) => answers[what](details),
  });
  const panel = document.createElement("div");
  const view = new StatisticsView(app, panel);
  return { app, view, panel, randomRun };
}

const PARTNERS = {
  runs: ["one", "two"].map((run_id) => ({ run_id, name: run_id, created_at: "2026-01-01", config: {} })),
};
const AGREEMENT = {
  state: "done",
  rows: { layer: [3], adjusted_rand: [0.5], low: [0.4], high: [0.6], shuffled: [0], random: [null] },
};

test("an agreement that failed is asked for again by its own button", async () => {
  const agreements = [{ error: "the server was busy" }, AGREEMENT];
  const { view } = opened({ compare_partners: () => PARTNERS, statistics_agreement: () => agreements.shift() });
  view.openPart("agreement");
  await settled();
  assert.match(view.status.textContent, /the server was busy/);
  await buttonCalled(view.status, common.retry).click();
  await settled();
  assert.equal(view.status.textContent, "");
  assert.equal(view.parts.agreement.results.hidden, false);
});

test("an agreement whose view was left while it was computed is there on return", async () => {
  const first = later();
  const agreements = [first.promise, AGREEMENT];
  const { app, view } = opened({ compare_partners: () => PARTNERS, statistics_agreement: () => agreements.shift() });
  view.openPart("agreement");
  await settled();
  app.closed = true;
  first.answer(AGREEMENT);
  await settled();
  app.closed = false;
  view.update();
  await settled();
  assert.equal(view.status.textContent, "");
  assert.equal(view.parts.agreement.results.hidden, false);
});

test("what was compared with another run does not stand under the name of one that failed", async () => {
  const agreements = { one: AGREEMENT, two: { error: "the server was busy" } };
  const { view } = opened({
    compare_partners: () => PARTNERS,
    statistics_agreement: ({ other }) => agreements[other],
  });
  view.openPart("agreement");
  await settled();
  assert.equal(view.parts.agreement.results.hidden, false);
  await view.parts.agreement.pick("two");
  assert.equal(view.parts.agreement.results.hidden, true);
});

const NO_ROWS = { group: [], statistic: [] };
const layerAnswer = () => ({ state: "done", groups: groupRows(), characteristic: NO_ROWS, categories: NO_ROWS });

function groupRows() {
  const blank = (value) => [value, value];
  return {
    group: ["A", "B"],
    statistic: blank("share"),
    value: blank(0.5),
    low: blank(null),
    high: blank(null),
    random: blank(null),
    warning: blank(""),
  };
}

test("no spinner stays over a layer that is known, when another was left while it was computed", async () => {
  const slow = later();
  const { app, view } = opened({ statistics_layer: ({ layer }) => (layer === 3 ? layerAnswer() : slow.promise) });
  view.openPart("groups");
  await settled();
  app.layerIndex = 1;
  view.update();
  await settled();
  assert.notEqual(view.status.textContent, "");
  app.closed = true;
  slow.answer(layerAnswer());
  await settled();
  app.closed = false;
  app.layerIndex = 0;
  view.update();
  await settled();
  assert.equal(view.status.textContent, "");
});

test("what failed for a layer is not said of another", async () => {
  const { app, view } = opened({
    statistics_layer: ({ layer }) => (layer === 3 ? layerAnswer() : { error: "the server was busy" }),
  });
  view.openPart("groups");
  await settled();
  app.layerIndex = 1;
  view.update();
  await settled();
  assert.match(view.status.textContent, /the server was busy/);
  app.layerIndex = 0;
  view.update();
  await settled();
  assert.equal(view.status.textContent, "");
});

test("a card selects its own layer's group, also while another layer is computed", async () => {
  const { app, view } = opened({
    statistics_layer: ({ layer }) => (layer === 3 ? layerAnswer() : new Promise(() => {})),
  });
  const { groups } = view.parts;
  view.openPart("groups");
  await settled();
  assert.equal(groups.title.textContent, text.groups.title(3));
  app.layerIndex = 1;
  view.update();
  await settled();
  app.selection = selectGroup(app.run, 1, 0);
  view.selectionChanged();
  assert.equal(groups.cards[0].button.getAttribute("aria-pressed"), "false");
  await groups.cards[0].button.click();
  assert.deepEqual(
    app.selected.map(({ layer, group }) => [layer, group]),
    [[3, 0]],
  );
});

test("the answer to one question does not stand under another, nor under another run", async () => {
  const statistics = [later(), later()];
  const asked = [...statistics];
  const { app, view } = opened({ statistics: () => asked.shift().promise });
  const { questions } = view.parts;
  view.openPart("questions");
  await settled();
  assert.equal(questions.answer.textContent, text.questions.notMeasured);
  questions.choose("words");
  await settled();
  assert.equal(questions.answer.textContent, "");
  statistics[0].answer({ error: "the server was busy" });
  await settled();
  assert.equal(questions.answer.textContent, "");
  assert.match(view.status.textContent, /the server was busy/);
  questions.choose("worse");
  await settled();
  assert.equal(questions.answer.textContent, text.questions.notMeasured);
  assert.equal(view.status.textContent, "");
  questions.choose("words");
  await settled();
  statistics[1].answer({ state: "done", run: { statistic: [] } });
  await settled();
  assert.equal(questions.answer.textContent, text.questions.notMeasured);
  app.run = randomRun({ numTokens: 12, numGroups: 2 }).run;
  asked.push(later());
  view.update();
  await settled();
  assert.equal(questions.answer.textContent, "");
});

test("what is missing of full attention is said of whose groups, with the command that measures it", () => {
  const { app, view } = opened({});
  const { overview } = view.parts ?? view;
  const invited = (attention_tokens, missing) => {
    overview.answer = { missing, about: { notes: [], attention_tokens } };
    overview.invite(null);
    return overview.state.textContent;
  };
  const nothing = { tags: false, random: false, attention: false };
  const command = `focus-explorer statistics ${app.run.info.run_id}`;
  const none = invited(null, { ...nothing, attention: true });
  assert.ok(none.includes(text.overview.measureAttention) && none.includes(`${command} --attention`));
  const own = invited(700, { ...nothing, attention: true });
  assert.ok(own.includes("random centroids would keep") && own.includes(text.overview.measureAttentionRandom));
  assert.ok(!own.includes(text.overview.measureAttention));
  assert.ok(!invited(700, { ...nothing, tags: true }).includes("--attention"));
  assert.equal(invited(700, nothing), "");
});

const distancesOf = (links) => ({
  state: "done",
  distances: { layer: [3, null], first: [0, 0], last: [9, 9], pairs: [40, 80], share: [0.5, 0.6], low: [null, null] },
  pairs: { query: [] },
  links: { kind: links, query: links.map(() => 9), key: links.map(() => 1), probability: links.map(() => 0.2) },
  links_measured: true,
  links_stored: { kept: links.length, dropped: 0 },
  query_heads: 2,
});

test("the chart of distances is gone where those of the open layer cannot be had, and back with them", async () => {
  const answers = { 3: distancesOf([]), 5: { error: "the server was busy" } };
  const { app, view } = opened({ statistics_pairs: ({ layer }) => answers[layer] });
  view.openPart("distances");
  await settled();
  const { body, links } = view.parts.distances;
  assert.equal(body.hidden, false);
  assert.ok(links.textContent.includes(text.distances.noneLinks) && !links.textContent.includes("strongest of 0"));
  app.layerIndex = 1;
  view.update();
  await settled();
  assert.match(view.status.textContent, /the server was busy/);
  assert.equal(body.hidden, true);
  app.layerIndex = 0;
  view.update();
  await settled();
  assert.equal(body.hidden, false);
});
