// Changes made to a run by hand: which are in force, and what is said of what follows from them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { changeWords } from "../../assets/js/compare/change-form.js";
import { CompareLinks } from "../../assets/js/compare/missing-links.js";
import { CompareView } from "../../assets/js/compare/view.js";
import { CompareWhatIf } from "../../assets/js/compare/what-if.js";
import { randomRun } from "./helpers.js";
import { explorer, openPage } from "./page.js";

/** Like `randomRun`, with an id of its own. */
function runOf(id, numTokens = 40) {
  const { run } = randomRun({ numTokens });
  run.info.run_id = id;
  run.config.top_k = 1;
  run.info.config.top_k = 1;
  return run;
}

function open(Part, run) {
  const app = explorer(run);
  const part = new Part(app);
  part.node.hidden = false;
  part.update();
  return { app, part };
}

test("the changes and the token of a link belong to the run it names", () => {
  openPage("?run=first&view=compare&set=silence:3:A&why=7");
  const changed = open(CompareWhatIf, runOf("first"));
  assert.deepEqual(changed.part.changes, ["silence:3:A"]);
  changed.app.run = runOf("second");
  changed.part.update();
  assert.deepEqual(changed.part.changes, []);
  assert.equal(changed.app.asked.at(-1).what, "what_if");
  const links = open(CompareLinks, runOf("first"));
  assert.equal(links.part.token, 7);
  const other = runOf("second", 20);
  other.losses.full.fill(1);
  other.losses.focus.fill(1);
  other.losses.focus[9] = 5;
  links.app.run = other;
  links.part.update();
  assert.equal(links.part.token, 9);
});

test("what a part showed of one run is not written into the address of another", () => {
  openPage("?run=first&view=compare&part=whatIf&set=silence:3:A");
  const app = explorer(runOf("first"));
  const view = new CompareView(app, app.root);
  view.update();
  assert.equal(view.parameters.set, "silence:3:A");
  app.run = runOf("second");
  assert.equal(view.parameters.set, null);
});

test("a link with changes that are none, or of tokens the run does not have, is shown as it is", () => {
  openPage();
  const run = runOf("first");
  for (const change of ["banana", "", "move:3:99:B", "see:3:99:1", "move", "k:3"]) {
    assert.equal(changeWords(run, change), change);
  }
  assert.equal(changeWords(run, "move:3:9:B"), "layer 3: token 9 “w9” in group B");
  assert.equal(changeWords(run, "k:3:1=2"), "layer 3, head 1: top-k 2");
  assert.equal(changeWords(run, "window:3=0"), "layer 3: window 0");
  assert.equal(changeWords(run, "full:3"), "layer 3: full attention");
});
