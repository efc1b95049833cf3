import assert from "node:assert/strict";
import { test } from "node:test";
import { hasBudget } from "../../assets/js/core/heads.js";
import { training } from "../../assets/js/strings/training.js";
import { whatIf } from "../../assets/js/strings/what-if.js";

test("a budget is there where some head has a setting of its own", () => {
  assert.deepEqual([{}, { budget: [] }, { budget: [{ layer: 0, full: true }] }].map(hasBudget), [false, false, true]);
});

test("a film of a training with a budget says of which heads the pairs are", () => {
  const { film } = training;
  assert.equal(film.words("9", "20 %", null, 0, false), "After step 9, 20 % of this text's pairs are kept.");
  assert.equal(
    film.words("9", "20 %", "3 %", "5", true),
    "After step 9, 20 % of this text's pairs are kept in heads without a setting of their own; " +
      "3 % of the tokens changed their group since step 5.",
  );
  assert.ok(film.help(true).endsWith("used on a text as a run would use it, in heads without a setting of their own."));
  assert.ok(film.help(false).endsWith("used on a text as a run would use it."));
});

test("tokens of a silent group may see the others of another group of theirs", () => {
  assert.match(whatIf.kindHints.silence, /only, unless they belong to another group/);
});
