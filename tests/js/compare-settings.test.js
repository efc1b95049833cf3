// The grid of settings of the Compare view: its chart, its sentences and its table.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CompareSettings } from "../../assets/js/compare/settings.js";
import { randomRun } from "./helpers.js";
import { answer, explorer, openPage } from "./page.js";

openPage();

const cell = (more = {}) => ({
  kind: "focus",
  top_k: 1,
  window_size: 16,
  perplexity_full: 100,
  perplexity_focus: 110,
  delta_mean: 0.1,
  delta_low: 0.05,
  delta_high: 0.15,
  retained_pairs: 0.3,
  dominance: 0.2,
  repeats: 3,
  attention_full: 10,
  attention_full_low: 9,
  attention_full_high: 11,
  attention_focus: 5,
  attention_focus_low: 4,
  attention_focus_high: 6,
  total_full: 20,
  total_focus: 15,
  scored: 39,
  device: "cpu",
  dtype: "float32",
  threads: 2,
  measured_at: "2026-01-01",
  ...more,
});

const payload = (cells, job = null) => ({
  cells,
  suggested: { top_k: [1, 2], window: [16] },
  setting: { top_k: 1, window: 16, num_sinks: 2 },
  num_groups: 8,
  job,
});

async function part(cells) {
  const app = explorer(randomRun().run);
  const settings = new CompareSettings(app);
  settings.node.hidden = false;
  settings.update();
  await answer(app.asked[0], payload(cells));
  return { app, settings };
}

test("the line of full attention stands at its perplexity, also on a logarithmic axis", async () => {
  for (const most of [0.1, 2]) {
    const { settings } = await part([cell(), cell({ window_size: 8, delta_mean: most, delta_high: most })]);
    const { shapes, annotations, yaxis } = settings.chart.fxRequested.layout;
    assert.equal(yaxis.type, most > 1 ? "log" : "linear");
    assert.deepEqual([shapes[0].y0, shapes[0].y1], [100, 100]); // Plotly takes the logarithm of a shape itself,
    assert.equal(annotations[0].y, most > 1 ? 2 : 100); // but not of an annotation
  }
});

test("the dotted line of the best settings takes no pointer from the points it joins", async () => {
  const { settings } = await part([cell()]);
  const [joined] = settings.chart.fxRequested.data;
  assert.equal(joined.hoverinfo, "skip");
});

test("what a grid takes is estimated by the times the run has now", async () => {
  const { app, settings } = await part([]);
  const timing = (mode, median) => ({ mode, stage: "end_to_end", median });
  assert.equal(settings.estimate.textContent, "");
  app.run.timings = [timing("full", 2000), timing("focus", 1000)];
  settings.update();
  assert.match(settings.estimate.textContent, /5 settings.*about 45\ss/); // of 3 repeats, 3 seconds each
});

test("the least attention time is claimed of the settings that are clearly faster", async () => {
  const { settings } = await part([cell({ attention_focus: 4, repeats: 1 }), cell({ window_size: 8 })]);
  assert.match(settings.verdict.textContent, /Least attention time of those clearly faster.*window 8, 0\.50×/);
});

test("a single setting and a single repeat are one", async () => {
  const { settings } = await part([cell({ repeats: 1, scored: 1 }), cell({ kind: "random", repeats: 1, scored: 1 })]);
  const words = settings.verdict.textContent;
  assert.match(words, /less time in 1 of 1 setting \(medians\)/);
  assert.match(words, /clearly better in 0 of 1 setting,/);
  assert.match(words, /1 scored token; 1 timed repeat;/);
});

test("settings that another run waits for are no rows of this run's table", async () => {
  const { app, settings } = await part([cell()]);
  const job = (run_id) => ({ kind: "grid", run_id, state: "running", stage: "", fraction: 0, message: "" });
  settings.topK.value = "1, 2";
  settings.window.value = "16, 64";
  settings.submit();
  await answer(app.asked[1], payload([cell({ measured_at: "2026-01-02" })], job("run")));
  assert.equal(settings.grid.querySelectorAll("tr").length, 3); // head, 16 and 64
  app.run = randomRun().run;
  app.run.info.run_id = "another";
  settings.update();
  await answer(app.asked.at(-1), payload([cell()], job("run")));
  assert.equal(settings.grid.querySelectorAll("tr").length, 2);
  clearTimeout(settings.timer);
});
