// The Centroids tab while its list is read, renamed and left.
import assert from "node:assert/strict";
import { test } from "node:test";
import { buttonCalled, document, later, root, settled } from "./page.js";
import { FocusFiles } from "../../assets/js/centroids/app.js";
import { facts } from "../../assets/js/centroids/facts.js";
import { centroids as text } from "../../assets/js/strings/centroids.js";

const file = (name) => ({
  name,
  sha256: name.padEnd(64, "0"),
  base_model: "a model",
  num_groups: 8,
  layers: 4,
  routing_dim: 16,
  config: { top_k: 1, window: 8, num_sinks: 1, gate: "soft" },
  added: "2026-01-01",
  owner: null,
  runs: 0,
  training: {},
  held_out: null,
});

const DETAIL = { layers: [{ layer: 0, similarity: [[1]] }], runs: [], budgets: null };

/** The tab with a server of these functions; `root` is its element. */
function opened(server) {
  const place = document.createElement("div");
  root.append(place);
  return { place, tab: FocusFiles.create(place, server, () => {}, () => {}) };
}

const cards = (place) => place.querySelectorAll("h3.fx-subtitle").map((title) => title.textContent);

test("a list read before a file was removed does not bring it back", async () => {
  const [here, gone] = [file("stays"), file("goes")];
  const slow = later();
  const lists = [{ files: [here, gone] }, slow.promise];
  const { place, tab } = opened({ load: async () => lists.shift(), remove: async () => ({ files: [here] }) });
  await settled();
  assert.deepEqual(cards(place).slice(0, 2), ["stays", "goes"]);
  const card = place.querySelectorAll("li.fx-file-card")[1];
  await buttonCalled(card, text.remove).click();
  const sure = buttonCalled(card, text.removeSure);
  tab.load();
  await sure.click();
  slow.answer({ files: [here, gone] });
  await settled();
  assert.equal(cards(place).includes("goes"), false);
});

test("what is inside a file is said under its new name once it was renamed", async () => {
  const before = file("before");
  const { place } = opened({
    load: async () => ({ files: [before] }),
    detail: async () => ({ ...DETAIL, sha256: before.sha256 }),
    rename: async ({ name }) => ({ files: [{ ...before, name }] }),
  });
  await settled();
  const card = () => place.querySelector("li.fx-file-card");
  await buttonCalled(card(), text.inspect).click();
  await settled();
  assert.equal(place.querySelector("h2").textContent, text.inside("before"));
  await buttonCalled(card(), text.rename).click();
  card().querySelector("input").value = "after";
  await card().querySelector("form").dispatch("submit");
  await settled();
  assert.equal(place.querySelector("h2").textContent, text.inside("after"));
});

test("the keyboard stays on the card when renaming or removing is called off", async () => {
  const { place } = opened({ load: async () => ({ files: [file("one")] }) });
  await settled();
  const card = place.querySelector("li.fx-file-card");
  const called = (words) => buttonCalled(card, words);
  await called(text.rename).click();
  await called(text.cancel).click();
  assert.equal(document.activeElement, called(text.rename));
  await called(text.rename).click();
  await card.querySelector("form").dispatch("keydown", { key: "Escape" });
  assert.equal(document.activeElement, called(text.rename));
  await called(text.remove).click();
  await called(text.keep).click();
  assert.equal(document.activeElement, called(text.remove));
});

test("one group, layer or token is not called groups, layers or tokens", () => {
  const [, groups, layers] = facts({ ...file("one"), num_groups: 1, layers: 1 });
  assert.deepEqual([groups, layers], ["1 group", "1 layer"]);
  assert.equal(facts(file("one"))[2], "4 layers");
  assert.match(text.unmatched("1"), /^1 group has no partner/);
  assert.match(text.unmatched("2"), /^2 groups have no partner/);
});
