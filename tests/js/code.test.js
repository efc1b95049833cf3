// Which texts are shown in letters of one width.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";
import { looksLikeCode } from "../../assets/js/tokens/code.js";

const samples = new URL("../../assets/samples/", import.meta.url);
const CODE = /code|sql/;

test("of the samples, code alone is taken for code", () => {
  const names = readdirSync(samples).filter((name) => name.endsWith(".txt"));
  assert.ok(names.some((name) => CODE.test(name)) && names.some((name) => !CODE.test(name)));
  for (const name of names) {
    const text = readFileSync(new URL(name, samples), "utf8");
    assert.equal(looksLikeCode(text), CODE.test(name), name);
  }
});

const texts = {
  c: ["int main(void) {\n    int a = 1;\n    return a;\n}\n", true],
  html: ["<ul>\n  <li>One</li>\n  <li>Two</li>\n</ul>\n", true],
  javascript: ["const a = 1;\nfunction f(x) {\n  return x + a;\n}\n", true],
  verse: ["Shall I compare thee to a day?\n  Thou art more lovely and temperate:\nRough winds do shake,\nAnd\n", false],
  list: ["Buy:\n  milk,\n  bread\n\nThen go home, and rest.\nCall her.\nSleep.\n", false],
  line: ["x = 1;", false],
  empty: ["", false],
};

for (const [name, [text, code]] of Object.entries(texts))
  test(`${name} ${code ? "is" : "is not"} code`, () => assert.equal(looksLikeCode(text), code));
