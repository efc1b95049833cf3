import assert from "node:assert/strict";
import { test } from "node:test";
import { later, settled } from "./page.js";
import { AttentionPart } from "../../assets/js/sparsity/attention.js";
import { ArrangedMask } from "../../assets/js/sparsity/arranged.js";
import { MOST_TOKENS } from "../../assets/js/sparsity/arrangement.js";
import { SparsityView } from "../../assets/js/sparsity/view.js";
import { randomRun } from "./helpers.js";

const PAIRS = { local_only: 30, group_only: 20, local_and_group: 0, sink_only: 0, dropped: 50 };

test("the scale of shares is shown where colours are shares: not of single pairs, which have causes", () => {
  const { run } = randomRun();
  Object.assign(run.layers[0].parts[0], { pairs: PAIRS });
  const app = { run, layerIndex: 0, part: 0, root: {}, tooltip: {} };
  const causes = Object.keys(PAIRS);
  const legend = { items: 0, replaceChildren: (...items) => (legend.items = items.length) };
  const view = { app, legend, causesHint: { replaceChildren() {} }, kind: "kept", explained: "", maskData: { causes } };
  Object.setPrototypeOf(view, SparsityView.prototype);
  const shown = (kind, blockSize) => {
    view.kind = kind;
    view.colouring({ blockSize, causes, matrix: () => [] });
    return legend.items - causes.length;
  };
  assert.deepEqual([shown("kept", 8), shown("kept", 1), shown("main", 8), shown("dropped", 1)], [1, 0, 0, 1]);
});

test("an answer that comes after a newer one changes nothing", async () => {
  const questions = [];
  const { run } = randomRun();
  const request = () => {
    questions.push(later());
    return questions.at(-1).promise;
  };
  const part = new AttentionPart({ run, tooltip: {}, isOpen: () => true, request });
  const states = [];
  part.take = ({ state }) => states.push(state);
  part.update();
  part.update();
  questions[1].answer({ state: "done" });
  questions[0].answer({ state: "running" });
  await settled();
  assert.deepEqual(states, ["done"]);
});

test("of a long text the share of pairs kept is said to be that of its first tokens", () => {
  const node = () => ({ dataset: {}, setAttribute: (_, value) => (node.label = value) });
  const picture = Object.assign(Object.create(ArrangedMask.prototype), {
    app: { run: { numTokens: MOST_TOKENS + 1, layerIds: [3] }, layerIndex: 0 },
    pairs: { count: 12, share: 0.25, numTokens: MOST_TOKENS },
    order: "text",
    canvas: node(),
    note: {},
  });
  picture.describe();
  const words = /12 pairs are kept, 25\.0\u00a0% of those of the first 4,096 tokens, which the picture shows\./;
  assert.match(picture.note.textContent, words);
  assert.match(node.label, words);
  picture.app.run.numTokens = MOST_TOKENS;
  picture.describe();
  assert.match(picture.note.textContent, /^12 pairs are kept, 25\.0\u00a0% of all\. /);
});
