// What the Training tab says of a training's windows, of its budget, and of what its loss was measured with.
import assert from "node:assert/strict";
import { test } from "node:test";
import { format } from "../../assets/js/core/format.js";
import { training as text } from "../../assets/js/strings/training.js";
import { lossHint } from "../../assets/js/training/newest.js";

const CONFIG = { num_groups: 8, top_k: 1, window: 64, num_sinks: 4, gate: "log", normalisation: "sinkhorn" };

const SETTINGS = { loss: "lm", hard: false, hard_steps: 0, learn: "groups", result_window: 128 };

const runOf = ({ name = "a", kind = "centroids", config = {}, settings = {}, loss = 3 } = {}) => ({
  name,
  kind,
  loss,
  model_id: "tiny",
  texts: ["a.txt"],
  seed: 0,
  device: "cpu",
  dtype: "float32",
  created_at: "2026-01-01T00:00:00+00:00",
  config: { ...CONFIG, ...config },
  settings: { ...SETTINGS, ...settings },
});

const windowsOf = (run) =>
  text
    .settings(run)
    .split(", ")
    .filter((part) => part.includes("window"));

test("the settings name the window of use, and that of the training where it is another", () => {
  assert.deepEqual(windowsOf(runOf()), ["window 128", "training window 64"]);
  assert.deepEqual(windowsOf(runOf({ settings: { result_window: 64 } })), ["window 64"]);
  assert.deepEqual(windowsOf(runOf({ kind: "two-phase", settings: { result_window: undefined } })), ["window 64"]);
  const growing = runOf({ config: { window_growth: [1024, 4096] } });
  assert.deepEqual(windowsOf(growing), ["window 128 growing (1024 to 4096)", "training window 64"]);
});

test("the settings name the budget", () => {
  assert.ok(!text.settings(runOf()).includes("budget"));
  assert.match(text.settings(runOf({ config: { exceptions: 72 } })), /, budget of 72 exceptions$/);
});

test("an older record says at which window its pairs were counted", () => {
  const older = (settings) => runOf({ settings: { result_window: undefined, ...settings } });
  const said = (run) => text.facts(run, format).filter((fact) => fact.includes("pairs kept"));
  assert.deepEqual(windowsOf(older({})), ["training window 64"]);
  assert.deepEqual(said(runOf()), []);
  assert.deepEqual(said(older({})), ["recorded by an earlier version: pairs kept at the training window of 64"]);
  assert.match(said(older({ hard_steps: 5 }))[0], /64, in the steps on the hard mask at that of use$/);
  assert.deepEqual(said(older({ learn: "factors" })), []);
});

test("the loss is said to be of the gate or the mask that the steps ran on", () => {
  const hint = (...runs) => lossHint(runs.map(runOf)).replace(/^.* in nats, |; lower is better$/g, "");
  assert.equal(hint({}), "with the soft gate");
  assert.equal(hint({}, { name: "b" }), "with the soft gate");
  assert.equal(hint({ settings: { hard: true } }), "under the hard mask");
  assert.equal(hint({ settings: { learn: "factors" } }), "under the mask of later use");
  assert.equal(
    hint({ settings: { hard_steps: 50 } }),
    "with the soft gate, in the last 50 steps under the hard mask",
  );
  assert.equal(hint({ config: { num_groups: undefined } }), "with its own attention");
  assert.equal(
    hint({}, { name: "b", settings: { hard: true } }, { name: "c", settings: { learn: "factors" }, loss: null }),
    "with the soft gate (a); under the hard mask (b)",
  );
});

test("steps on the mask are among the facts", () => {
  const facts = (settings) => text.facts(runOf({ settings }), format);
  assert.ok(facts({ hard: true }).includes("all steps on the hard mask"));
  assert.ok(facts({ learn: "factors" }).includes("factors of logits, all steps under the mask at the settings of use"));
});

test("with a budget the scores are not said to be of one k in all heads", () => {
  const words = (budget) => text.validation("70", [], "8.00", "9.00 with Focus at k = 1", budget);
  assert.ok(words(true).startsWith(words(false)));
  assert.match(words(true), /heads without a setting of their own; the others keep theirs\.$/);
});
