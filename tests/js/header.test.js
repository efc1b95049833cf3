// The header of a run: what a narrow screen folds behind one button.
import assert from "node:assert/strict";
import { test } from "node:test";
import { buttonCalled } from "./page.js";
import { runHeader } from "../../assets/js/shell/header.js";
import { randomRun } from "./helpers.js";

test("the button that unfolds the facts says what it unfolds and whether it has", () => {
  const { run } = randomRun();
  const notes = ["The text was cut."];
  Object.assign(run.info, { title: "a text", notes, added_tokens: ["<bos>"], created_at: "2024-05-01T10:00:00Z" });
  const header = runHeader(run, { id: "tooltip" });
  assert.match(header.textContent, /tokens with <bos>/);
  const button = buttonCalled(header, "Details");
  const classes = button
    .getAttribute("aria-controls")
    .split(" ")
    .map((id) => header.querySelector(`[id=${id}]`).getAttribute("class"));
  assert.deepEqual(classes, ["fx-header-about", "fx-cards"]);
  const state = () => [button.getAttribute("aria-expanded"), header.getAttribute("data-open") !== null];
  assert.deepEqual(state(), ["false", false]);
  button.click();
  assert.deepEqual(state(), ["true", true]);
  button.click();
  assert.deepEqual(state(), ["false", false]);
});
