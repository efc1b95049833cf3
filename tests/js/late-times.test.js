// Times that are measured while a view is open that says them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { document } from "./page.js";
import { App } from "../../assets/js/shell/app.js";

test("repeated times are drawn anew in every view that says them", async () => {
  for (const [view, drawn] of [
    ["compare", 1],
    ["statistics", 1],
    ["map", 0],
  ]) {
    const run = { info: { run_id: "run" }, trainedOn: [], timing: () => null };
    let refreshed = 0;
    const app = {
      run,
      headerPlace: document.createElement("div"),
      tooltip: {},
      request: async () => ({ timings: [] }),
      isOpen: (name) => name === view,
      refresh: () => (refreshed += 1),
    };
    await App.prototype.renewTimings.call(app, "run", false);
    assert.equal(refreshed, drawn, view);
  }
});
