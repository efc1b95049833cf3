// Why a token is predicted worse: what is said of the links that were added.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CompareLinks } from "../../assets/js/compare/missing-links.js";
import { randomRun } from "./helpers.js";
import { answer, explorer, openPage } from "./page.js";

openPage();

const link = (more = {}) => ({
  layer: 3,
  head: 2,
  query: 8,
  key: 7,
  probability: 0.2,
  predicted: -0.4,
  nll: 1.5,
  random_keeps: null,
  ...more,
});

async function shown(links, together, more = {}) {
  const app = explorer(randomRun().run);
  const part = new CompareLinks(app);
  part.node.hidden = false;
  part.update();
  const found = { nll_full: 1, nll_focus: 2, nll_together: together, dropped_pairs: 1, links, ...more };
  await answer(app.asked[0], { tokens: [9, 12], explained: { token: 9, ...found }, job: null });
  return { app, part, words: part.verdict.textContent };
}

test("a single link is one, and is not added to itself", async () => {
  const { part, words } = await shown([link({ random_keeps: false })], 1.5);
  assert.match(words, /One dropped link, added, brings it to 1\.50 nats: that explains 0\.50 of the 1\.00 nats/);
  assert.doesNotMatch(words, /one at a time|together/);
  assert.match(words, /alone would have dropped it; random groups of the same shape would have dropped it, too\./);
  assert.match(words, /1 dropped pair was compared/);
  assert.match(part.list.textContent, /layer 3, query head 2/);
  assert.match(part.list.textContent, /1 token back/);
});

test("links that win nothing together are not said to explain a negative share", async () => {
  const { words } = await shown([link(), link({ key: 3, nll: 1.9 })], 2.25);
  assert.match(words, /2 dropped links, added together, bring it to 2\.25 nats: together they win nothing/);
  assert.doesNotMatch(words, /explains|same work/);
});

test("where the mask drops nothing, nothing is said to have been compared", async () => {
  const { words } = await shown([], null, { dropped_pairs: 0 });
  assert.match(words, /The mask drops no pair before this token/);
  const one = await shown([], null);
  assert.match(one.words, /The one dropped pair would not have helped/);
});

test("the tokens explained so far stay the same buttons, so that the focus stays", async () => {
  const { app, part } = await shown([], null);
  const buttons = [...part.known.querySelectorAll("button")];
  const other = buttons.find((button) => button.getAttribute("aria-pressed") === "false"); // of two at least one
  other.click();
  await answer(app.asked[1], { tokens: [9, 12], explained: null, job: null });
  assert.deepEqual([...part.known.querySelectorAll("button")].map((button) => buttons.indexOf(button)), [0, 1]);
  assert.equal(other.getAttribute("aria-pressed"), "true");
});
