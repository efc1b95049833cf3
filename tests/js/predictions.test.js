// The predictions of one token, with full attention and with Focus.
import assert from "node:assert/strict";
import { test } from "node:test";
import "./page.js";
import { predictionList } from "../../assets/js/core/prediction-list.js";
import { TokenPredictions } from "../../assets/js/tokens/predictions.js";

test("the first choice changes with the id of the token, also where two are written alike", () => {
  const shown = TokenPredictions.prototype.lists;
  const one = { rank: 1, tokens: [["\ufffd", 0.5]] };
  const words = (changed) => shown("\ufffd", { token: 3, full: one, focus: one, changed })[0].textContent;
  assert.equal(words(true), "Focus changes the first choice.");
  assert.equal(words(false), "The first choice is the same.");
});

test("of tokens that are written alike only the real one is marked, by its rank", () => {
  const tokens = [
    ["\ufffd", 0.4],
    ["a", 0.2],
    ["\ufffd", 0.2],
    ["\ufffd", 0.1],
  ];
  /** @param {number} rank @param {string} piece */
  const marked = (rank, piece) =>
    [...predictionList("", piece, { rank, tokens }).querySelectorAll("li")].map((item) => item.dataset.real === "");
  assert.deepEqual(marked(4, "\ufffd"), [false, false, false, true]);
  assert.deepEqual(marked(2, "\ufffd"), [false, false, true, false]); // as probable as the second
  assert.deepEqual(marked(7, "\ufffd"), [false, false, false, false]);
});
