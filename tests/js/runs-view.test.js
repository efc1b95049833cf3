// The Runs tab while the labels of one run are saved and those of another are written.
import assert from "node:assert/strict";
import { test } from "node:test";
import { document, later, settled } from "./page.js";
import { App } from "../../assets/js/runs/app.js";

globalThis.CSS = { escape: (words) => words };

const stored = (run_id) => ({
  run_id,
  title: run_id,
  name: "",
  note: "",
  tags: [],
  model_id: "a model",
  centroids_name: "a file",
  num_tokens: 9,
  added_tokens: [],
  perplexity_full: 2,
  perplexity_focus: 3,
  retained_pairs: 0.5,
  dominance: 0.5,
  config: { num_groups: 2, top_k: 1, window: 4, num_sinks: 1 },
  created_at: "2026-01-01",
  deleted_at: null,
  owner: null,
});

test("what is typed for one run stays while the labels of another are saved", async () => {
  const saving = later();
  const app = new App(document.createElement("div"), {
    load: async () => ({ runs: [stored("one"), stored("two")], keep_days: 30 }),
    label: () => saving.promise,
  });
  await settled();
  app.edit("one");
  app.save(app.runs[0], { name: "new", note: "", tags: [] });
  app.edit("two");
  const form = app.openForm.node;
  saving.answer({ name: "new" });
  await settled();
  assert.equal(app.editing, "two");
  assert.equal(app.openForm?.node, form);
  assert.equal(app.list.querySelector("form"), form);
});

test("what is typed for one run stays while another is brought back", async () => {
  const app = new App(document.createElement("div"), {
    load: async () => ({ runs: [stored("one"), stored("two")], keep_days: 30 }),
    restore: async () => ({ deleted: false }),
  });
  await settled();
  app.edit("two");
  const form = app.openForm.node;
  await app.restore(app.runs[0]);
  assert.equal(app.list.querySelector("form"), form);
  assert.equal(document.activeElement.getAttribute("data-testid"), "fx-run-edit");
});
