// Changes made to a run by hand: which are in force, and what is said of what follows from them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { changeWords } from "../../assets/js/compare/change-form.js";
import { CompareLinks } from "../../assets/js/compare/missing-links.js";
import { CompareView } from "../../assets/js/compare/view.js";
import { CompareWhatIf } from "../../assets/js/compare/what-if.js";
import { selectToken } from "../../assets/js/core/selection.js";
import { base64, randomRun } from "./helpers.js";
import { answer, explorer, openPage } from "./page.js";

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

const result = (more = {}) => ({
  num_tokens: 40,
  nll_full: 1,
  nll_before: 1.2,
  nll_after: 1.1,
  difference: { mean: -0.1, low: -0.2, high: -0.05, count: 39 },
  changes: base64(new Float32Array(40)),
  other_top: [],
  layers: [{ layer: 3, moved: 1, kept_before: 0.5, kept_after: 0.25 }],
  ...more,
});

const measured = (more = {}) => ({
  result: result(),
  pairs: null,
  prediction: null,
  saved: null,
  command: "focus-explorer what-if",
  job: null,
  ...more,
});

const pairs = (gained, lost) => ({
  layer: 3,
  num_tokens: 40,
  block_size: 40,
  gained,
  lost,
  gained_shares: base64(Float32Array.of(gained / 820)),
  lost_shares: base64(Float32Array.of(lost / 820)),
});

test("numbers of what follows are in their units, and one is one", async () => {
  openPage();
  const { app, part } = open(CompareWhatIf, runOf("first"));
  part.showChanges(["see:3:9:1"]);
  await answer(app.asked[0], measured({ pairs: pairs(1, 0) }));
  assert.match(part.pairs.words.textContent, /^1 pair gained, 0 lost/);
  assert.match(part.verdict.textContent, /One token changes its group in one layer\./);
  const { textContent } = part.table;
  assert.match(textContent, /Change \(percentage points\)/);
  assert.match(textContent, /25\.0\s%−25\.0$/); // of the pairs, not of those kept before
  part.watch();
  await answer(app.asked[1], measured({ pairs: pairs(0.25, 12.5) }));
  assert.match(part.pairs.words.textContent, /^0\.25 pairs gained, 12\.50 lost/);
  part.watch();
  await answer(app.asked[2], measured({ pairs: pairs(1200, 0.5) }));
  assert.match(part.pairs.words.textContent, /^1,200 pairs gained, 0\.50 lost/);
});

test("the first token is not said to be unread: nothing comes before it to predict it from", async () => {
  openPage();
  const { app, part } = open(CompareWhatIf, runOf("first"));
  await answer(app.asked[0], measured({ prediction: { token: 0, before: null, after: null } }));
  assert.match(part.prediction.textContent, /Nothing predicts the first token/);
  part.watch();
  await answer(app.asked[1], measured({ prediction: { token: 39, before: null, after: null } }));
  assert.match(part.prediction.textContent, /was not read again/);
});

test("what was refused leaves nothing to undo, and Undo that is refused can be tried again", async () => {
  openPage();
  const { app, part } = open(CompareWhatIf, runOf("first"));
  await answer(app.asked[0], measured({ result: null }));
  part.set(["silence:3:A"]);
  await answer(app.asked[1], { error: "another comparison is being measured" });
  assert.deepEqual(part.changes, []);
  assert.ok(part.undo.disabled);
  part.set(["silence:3:A"]);
  await answer(app.asked[2], measured());
  part.set(["silence:3:A", "full:3"]);
  await answer(app.asked[3], measured());
  part.back();
  await answer(app.asked[4], { error: "another comparison is being measured" });
  assert.deepEqual(part.changes, ["silence:3:A", "full:3"]);
  part.back();
  await answer(app.asked[5], measured());
  assert.deepEqual(part.changes, ["silence:3:A"]);
});

test("a saved run is named once, until the changes are others", async () => {
  openPage();
  const { app, part } = open(CompareWhatIf, runOf("first"));
  await answer(app.asked[0], measured());
  part.set(["silence:3:A"]);
  await answer(app.asked[1], measured({ saved: "made" }));
  const [words] = part.savedPlace.children;
  assert.match(words.textContent, /Saved as run made/);
  part.watch(); // a token was selected
  await answer(app.asked[2], measured({ saved: "made" }));
  assert.equal(part.savedPlace.children[0], words); // the button keeps the focus, and nothing is read out again
  part.set([]);
  await answer(app.asked[3], measured({ saved: "made", result: null }));
  assert.equal(part.savedPlace.textContent, "");
});

test("a half-filled form stays when a token is selected that it does not ask for", async () => {
  openPage();
  const { app, part } = open(CompareWhatIf, runOf("first"));
  part.form.kind = "window";
  part.form.reset();
  const [window] = part.form.fields.querySelectorAll("input");
  window.value = "512";
  window.dispatch("input");
  app.selection = selectToken(12);
  part.selectionChanged();
  assert.equal(part.form.change, "window:3=512");
  part.form.kind = "move";
  part.form.reset();
  app.selection = selectToken(13);
  part.selectionChanged();
  assert.match(part.form.change, /^move:3:13:/);
});

test("an untouched form follows the open layer, one that is half filled does not", async () => {
  openPage();
  const { app, part } = open(CompareWhatIf, runOf("first"));
  part.form.kind = "full";
  part.form.reset();
  app.layerIndex = 2;
  part.update();
  assert.equal(part.form.change, "full:9");
  const [layer] = part.form.fields.querySelectorAll("select").slice(1);
  layer.value = "5";
  layer.dispatch("change");
  app.layerIndex = 0;
  part.update();
  assert.equal(part.form.change, "full:5");
});
