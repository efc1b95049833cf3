import assert from "node:assert/strict";
import { test } from "node:test";
import { shownPieces, textOf } from "../../assets/js/core/characters.js";
import { visibleToken } from "../../assets/js/core/labels.js";
import { below, times } from "./helpers.js";

const piece = (bytes) => {
  const hex = [...bytes].map((byte) => byte.toString(16).toUpperCase().padStart(2, "0"));
  return `‹${hex.join(" ")}›`;
};

test("a character stands on the token of its first byte, the others continue it", () => {
  const pieces = ["a", "‹E6 98›", "‹A5›", "‹F0 9F›", "‹99›", "‹82›", " b"];
  const shown = shownPieces(pieces);
  assert.deepEqual(shown, ["a", "春", "·", "🙂", "·", "·", " b"]);
  assert.equal(textOf(pieces, shown, 0, 7), "a春🙂 b");
  assert.equal(textOf(pieces, shown, 2, 4), "🙂");
});

test("bytes of a text cut anywhere add up to it", () => {
  const text = "今日は🙂 مرحبا é";
  const bytes = new TextEncoder().encode(text);
  for (let round = 0; round < 20; round += 1) {
    const cuts = [...new Set(times(8, () => 1 + below(bytes.length - 1)))].sort((a, b) => a - b);
    const pieces = [0, ...cuts].map((from, i) => piece(bytes.slice(from, [...cuts, bytes.length][i])));
    assert.equal(textOf(pieces, shownPieces(pieces), 0, pieces.length), text);
  }
});

test("bytes that are no characters, and dots of the text itself, stay as they are", () => {
  assert.deepEqual(shownPieces(["‹E6 98›", "x", "·"]), ["‹E6 98›", "x", "·"]);
  assert.equal(textOf(["·"], ["·"], 0, 1), "·");
});

test("bytes are not taken for text with a space in it", () => {
  assert.equal(visibleToken("‹E4 BC›"), "‹E4 BC›");
  assert.equal(visibleToken("‹E4 B›"), "‹E4␣B›");
});

test("bytes that are no characters leave the characters around them as they are", () => {
  const cut = ["‹F0 9F›", "‹99 82›", "‹E6 98›"]; // a text cut in the middle of its last character
  assert.deepEqual(shownPieces(cut), ["🙂", "·", "‹E6 98›"]);
  assert.deepEqual(shownPieces(["‹A5 E6›", "‹98 A5›"]), ["‹A5 E6›", "‹98 A5›"]);
  assert.deepEqual(shownPieces(["‹FF›", "‹E6 98›", "‹A5›"]), ["‹FF›", "春", "·"]);
});

test("a byte order mark is a character like any other", () => {
  assert.deepEqual(shownPieces(["‹EF BB›", "‹BF F0 9F›", "‹99 82›"]), ["\ufeff", "🙂", "·"]);
});

test("a token without anything to see has a mark, also what only changes the character before it", () => {
  assert.equal(visibleToken("\ufe0f"), "\\ufe0f");
  assert.equal(visibleToken("❤\ufe0f"), "❤\\ufe0f");
  assert.equal(visibleToken("\u{e0067}"), "\\u{e0067}");
  assert.equal(visibleToken("\u0301"), "\u25cc\u0301");
  assert.equal(visibleToken("e\u0301"), "e\u0301");
  assert.equal(visibleToken("\u200d"), "\\u200d");
});
