// The search of the Tokens view where a filter hides some of what it finds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { buttonCalled } from "./page.js";
import { Search } from "../../assets/js/tokens/search.js";
import { randomRun } from "./helpers.js";

/** A search in 40 tokens " w0" to " w39"; `reached` has the tokens that it went to, `selected` what it selected. */
function searching(hides = () => false) {
  const selected = [];
  const reached = [];
  const app = { run: randomRun().run, select: ({ positions }) => selected.push([...positions]) };
  const handlers = { changed() {}, reached: (pos) => reached.push(pos), top: () => 0, shows: (pos) => !hides(pos) };
  const search = new Search(app, handlers);
  return { search, reached, selected, handlers };
}

async function find(search, words) {
  search.field.value = words;
  await search.run();
}

test("steps go only to hits that the filter shows, and the hidden ones are counted", async () => {
  const { search, reached, selected } = searching((pos) => pos % 2 === 1); // hits: 3 and 30 to 39
  await find(search, "w3");
  assert.equal(search.status.textContent, "1 of 5, 6 hidden by the filter");
  for (let i = 0; i < 5; i += 1) search.step(1);
  search.step(-1);
  assert.deepEqual(reached, [30, 32, 34, 36, 38, 30, 38]);
  buttonCalled(search.node, "Select all hits").click();
  assert.deepEqual(selected, [[30, 32, 34, 36, 38]]);
});

test("a hit of several tokens is shown where one of them is, and reached at that one", async () => {
  const { search, reached } = searching((pos) => pos !== 8);
  await find(search, "w7 w8 w9");
  assert.deepEqual(reached, [8]);
  assert.equal(search.status.textContent, "1 of 1");
});

test("another filter keeps the current hit if it shows it, and says where it hides all", async () => {
  const { search, handlers, reached } = searching();
  await find(search, "w3");
  search.step(1);
  assert.equal(search.status.textContent, "2 of 11");
  handlers.shows = (pos) => pos >= 30;
  search.filtered();
  assert.equal(search.status.textContent, "1 of 10, 1 hidden by the filter");
  handlers.shows = (pos) => pos > 30;
  search.filtered();
  assert.equal(search.status.textContent, "9 hits, 2 hidden by the filter");
  handlers.shows = () => false;
  search.filtered();
  assert.equal(search.status.textContent, "0 hits, 11 hidden by the filter");
  assert.ok(search.buttons.every((button) => button.disabled));
  search.step(1);
  assert.deepEqual(reached, [3, 30]);
  handlers.shows = () => true;
  search.filtered();
  search.step(1);
  assert.equal(reached.at(-1), 3);
});
