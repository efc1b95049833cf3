// The Tokens view where a layer does not come, and where the filter hides the token the keyboard acts on.
import assert from "node:assert/strict";
import { test } from "node:test";
import "./page.js";
import { TokensView } from "../../assets/js/tokens/view.js";
import { randomRun } from "./helpers.js";

/** A view without its elements; what it shows of a token is kept in `shown`. */
function viewOf(run) {
  const shown = [];
  const app = { run, layerIndex: 0, part: 0, selection: { size: 1, positions: [3] }, isOpen: () => true };
  const view = Object.assign(Object.create(TokensView.prototype), {
    app,
    run,
    problem: null,
    filter: { active: false },
    lines: { lines: [1] },
    typing: { update() {} },
    detail: { show: (pos, links, problem) => shown.push(problem ?? null), hide() {} },
    legend: { update() {} },
    repaint() {},
  });
  return { view, app, shown };
}

test("a layer that did not come keeps its problem when the view is drawn again, and no other layer has it", () => {
  const { view, app, shown } = viewOf(randomRun().run);
  view.layerFailed("no answer");
  view.update();
  assert.deepEqual(shown, ["no answer", "no answer"], "else the panel would wait for what nobody asked for");
  app.layerIndex = 1;
  view.update();
  assert.equal(shown.at(-1), null);
  app.layerIndex = 0;
  view.update();
  assert.equal(shown.at(-1), null, "the layer is asked for again");
});
