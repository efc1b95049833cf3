// The predictions of one token, with full attention and with Focus.
import assert from "node:assert/strict";
import { test } from "node:test";
import "./page.js";
import { TokenPredictions } from "../../assets/js/tokens/predictions.js";

test("the first choice changes with the id of the token, also where two are written alike", () => {
  const shown = TokenPredictions.prototype.lists;
  const one = { rank: 1, tokens: [["\ufffd", 0.5]] };
  const words = (changed) => shown("\ufffd", { token: 3, full: one, focus: one, changed })[0].textContent;
  assert.equal(words(true), "Focus changes the first choice.");
  assert.equal(words(false), "The first choice is the same.");
});
