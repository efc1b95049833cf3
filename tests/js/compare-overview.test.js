// Focus against full attention: the first part of the Compare view.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Overview } from "../../assets/js/compare/overview.js";
import { randomRun } from "./helpers.js";
import { explorer, openPage } from "./page.js";

openPage();

const timing = (mode, median) => ({
  mode,
  stage: "end_to_end",
  median,
  low: median - 1,
  high: median + 1,
  repeats: 3,
  sequence_length: 40,
  backend: "torch",
  peak_memory_bytes: 0,
});

test("times that come after the run are in the verdict and in the table", () => {
  const { run } = randomRun();
  Object.assign(run.info, { device: "cpu", dtype: "float32", backend: "torch" });
  run.timings = [timing("full", 100), timing("focus", 200)];
  const overview = new Overview(explorer(run), () => {});
  overview.update();
  assert.match(overview.verdict.textContent, /2\.00× the time/);
  run.timings = [timing("full", 100), timing("focus", 50)];
  overview.update();
  assert.match(overview.verdict.textContent, /0\.50× the time/);
  assert.match(overview.table.textContent, /50\.0\sms/);
});
