import assert from "node:assert/strict";
import { test } from "node:test";
import { runs as compared } from "../../assets/js/strings/compare.js";
import { runs } from "../../assets/js/strings/runs.js";
import { statistics } from "../../assets/js/strings/statistics.js";

const config = { num_groups: 8, top_k: 1, window: 128, num_sinks: 4 };
const budget = [{ layer: 0, full: true }];

test("runs whose windows grow or whose heads differ have other labels than those of heads all alike", () => {
  assert.equal(runs.setting(config), "K=8, k=1, w=128, s=4");
  assert.equal(runs.setting({ ...config, budget }), "K=8, k=1, w=128, s=4, budget of 1 exception"); // recorded before
  const both = { ...config, budget: [...budget, { layer: 1, top_k: 0 }], window_growth: [1024, 8192] };
  assert.equal(runs.setting(both), "K=8, k=1, w=128 growing (1024 to 8192), s=4, budget of 2 exceptions");
  const [one, other] = ["9f3ac1d20b7e", "0c51d2f7aa10"].map((id) => runs.setting({ ...config, budget, budget_id: id }));
  assert.deepEqual(
    [one, other].map((words) => words.split(", ").pop()),
    ["budget of 1 exception (9f3ac1)", "budget of 1 exception (0c51d2)"],
  );
  const run = { name: "", centroids_name: "default", date: "now" };
  assert.equal(compared.option({ ...run, config }), "default, top-k 1, window 128, K = 8, now");
  assert.equal(
    compared.option({ ...run, config: both }),
    "default, top-k 1, window 128 growing (1024 to 8192), K = 8, budget of 2 exceptions, now",
  );
  assert.equal(statistics.agreement.option({ ...run, config }), "default, top-k 1, window 128, now");
  assert.equal(
    statistics.agreement.option({ ...run, config: both }),
    "default, top-k 1, window 128 growing (1024 to 8192), budget of 2 exceptions, now",
  );
});
