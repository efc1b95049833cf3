// The film of a training when a layer fails and another training is opened, and the progress of a training.
import assert from "node:assert/strict";
import { test } from "node:test";
import { base64, times } from "./helpers.js";
import { root, settled } from "./page.js";
import { Tooltip } from "../../assets/js/core/tooltip.js";
import { training as text } from "../../assets/js/strings/training.js";
import { Detail } from "../../assets/js/training/detail.js";
import { Film } from "../../assets/js/training/film.js";

const filmOf = (layer, frames = 4, tokens = 3) => ({
  layers: [1, 2],
  layer,
  texts: ["Novel"],
  text: "Novel",
  pieces: times(tokens, (pos) => `w${pos}`),
  steps: times(frames, (frame) => 10 * (frame + 1)),
  num_groups: 2,
  window: 1,
  window_growth: null,
  num_sinks: 0,
  sliding_window: null,
  top: base64(new Uint8Array(frames * tokens)),
  membership: base64(new Uint8Array(frames * tokens)),
  places: base64(new Int16Array(frames * tokens * 2)),
  spread: 0.5,
  waiting: 0,
  has_budget: false,
});

function filmWith(answer) {
  globalThis.requestAnimationFrame = () => {};
  const film = new Film(root, { film: async (asked) => answer(asked) });
  film.map.paint = film.mask.paint = () => {};
  film.update({ training_id: "first", kind: "centroids" });
  return film;
}

test("a layer that fails is not named above the film of another", async () => {
  const film = filmWith(({ layer }) => (layer === 2 ? { error: "the server was busy" } : filmOf(1)));
  await film.ask();
  film.layers.value = "2";
  await film.layers.dispatch("change");
  await settled();
  assert.match(film.message.textContent, /server was busy/);
  assert.equal(film.layers.value, "1");
  assert.deepEqual(film.wanted, { layer: 1, text: "Novel" });
});

test("the film of another training begins at its first frame", async () => {
  const film = filmWith(() => filmOf(1));
  await film.ask();
  film.stop();
  film.show(2);
  film.update({ training_id: "second", kind: "centroids" });
  await film.ask();
  assert.equal(film.step.textContent, text.film.step("10"));
});

test("the bar of a training's progress has a name", () => {
  const { progress } = new Detail({ tooltip: new Tooltip(root), runAction() {} });
  assert.equal(progress.getAttribute("role"), "progressbar");
  assert.ok(progress.getAttribute("aria-label"));
});
