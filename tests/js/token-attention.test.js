import assert from "node:assert/strict";
import { test } from "node:test";
import { later, settled } from "./page.js";
import { TokenAttention } from "../../assets/js/tokens/attention.js";
import { base64, randomRun, times } from "./helpers.js";

const LAYERS = [3, 5, 9];

/** What a token attends to, all of it to itself, of which Focus keeps `kept`. */
function attentionOf(token, kept) {
  const floats = (value) => base64(Float32Array.from([value, value]));
  const layer = (number) => ({
    layer: number,
    rows: 2,
    keys: base64(Int32Array.from([token, token])),
    full: floats(1),
    focus: floats(1),
    kept: floats(1),
    full_kept: floats(kept),
  });
  return { token, job: null, layers: LAYERS.map(layer) };
}

/** The part of the panel, with the questions it asks; each is answered by hand. */
function part() {
  const questions = [];
  const { run } = randomRun({ layerIds: LAYERS });
  const app = {
    run,
    layerIndex: 1,
    tooltip: {},
    request(what, { token }) {
      const question = { what, token, ...later() };
      questions.push(question);
      return question.promise;
    },
  };
  return { app, questions, attention: new TokenAttention(app) };
}

test("an answer about one token is never shown of another, which is known already", async () => {
  const { questions, attention } = part();
  attention.show(7);
  attention.start();
  questions[0].answer(attentionOf(7, 0.25));
  await settled();
  attention.show(8);
  attention.show(7);
  questions[1].answer(attentionOf(8, 0.75));
  await settled();
  assert.match(attention.kept.textContent, /25/);
  attention.show(8);
  assert.equal(questions.length, 3, "the answer that came too late is asked for again");
  questions[2].answer(attentionOf(8, 0.75));
  await settled();
  assert.match(attention.kept.textContent, /75/);
});

test("an answer about another run is not taken for one of the run that is open", async () => {
  const { app, questions, attention } = part();
  attention.show(7);
  attention.start();
  app.run = randomRun({ layerIds: LAYERS }).run;
  app.run.info.run_id = "other";
  questions[0].answer(attentionOf(7, 0.25));
  await settled();
  attention.show(7);
  assert.deepEqual(
    times(questions.length, (at) => questions[at].what),
    ["token_attention_start", "token_attention_start"],
  );
});
