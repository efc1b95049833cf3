import assert from "node:assert/strict";
import { test } from "node:test";
import { later, settled } from "./page.js";
import { Typing } from "../../assets/js/tokens/typing.js";
import { base64, randomRun } from "./helpers.js";

const answerOf = (pieces, next) => ({
  pieces,
  layers: [3],
  top: base64(Uint8Array.from(pieces, () => 1)),
  tokens_read: pieces.length,
  milliseconds: 1,
  next,
});

function typingOf() {
  const questions = [];
  const app = {
    run: randomRun().run,
    layerIndex: 0,
    request(what, { text }) {
      const question = { run: app.run, text, ...later() };
      questions.push(question);
      return question.promise;
    },
  };
  const typing = new Typing(app);
  typing.node.open = true;
  typing.update();
  return { app, typing, questions };
}

test("another run is asked about the text as soon as the question to the run before is answered", async () => {
  const { app, typing, questions } = typingOf();
  typing.field.value = "some text";
  typing.ask();
  app.run = randomRun().run;
  typing.update();
  questions[0].answer(answerOf(["some", " text"], []));
  await settled();
  assert.deepEqual(
    questions.map(({ run, text }) => [run === app.run, text]),
    [
      [false, "some text"],
      [true, "some text"],
    ],
  );
  questions[1].answer(answerOf(["so", "me", " text"], []));
  await settled();
  assert.equal(typing.out.children.length, 3);
});

test("nothing of the run before stands below a text in another run", async () => {
  const { app, typing, questions } = typingOf();
  typing.field.value = "some";
  typing.ask();
  questions[0].answer(answerOf(["some"], [[" text", 0.5]]));
  await settled();
  assert.match(typing.next.textContent, /␣text/);
  typing.node.open = false;
  app.run = randomRun().run;
  typing.update();
  assert.deepEqual(
    [typing.out, typing.next, typing.status].map((node) => node.textContent),
    ["", "", ""],
  );
  assert.equal(questions.length, 1);
  typing.node.open = true;
  typing.node.dispatch("toggle");
  assert.equal(questions.length, 2, "asked about once it is opened");
});

test("a character that several tokens share is shown as in the text, not as bytes", async () => {
  const { typing, questions } = typingOf();
  typing.field.value = "🙂";
  typing.ask();
  questions[0].answer(answerOf(["‹F0 9F›", "‹99 82›"], []));
  await settled();
  assert.equal(typing.out.textContent, "🙂·");
});

test("a question that failed is asked again on request, without another letter", async () => {
  const { typing, questions } = typingOf();
  typing.field.value = "some";
  typing.ask();
  questions[0].answer({ error: "no answer" });
  await settled();
  assert.equal(questions.length, 1, "not by itself");
  typing.status.querySelector("button").dispatch("click");
  assert.deepEqual(
    questions.map(({ text }) => text),
    ["some", "some"],
  );
});

test("what is typed from right to left stands so", () => {
  const { typing } = typingOf();
  assert.deepEqual(
    [typing.field, typing.out].map((node) => node.getAttribute("dir")),
    ["auto", "auto"],
  );
});
