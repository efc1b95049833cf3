import assert from "node:assert/strict";
import { test } from "node:test";
import { breakLines } from "../../assets/js/tokens/line-breaks.js";
import { KEPT_CAUSES } from "../../assets/js/core/pair-rule.js";
import { Links } from "../../assets/js/tokens/links.js";
import { plainMatches, tokenHits } from "../../assets/js/tokens/matches.js";
import { toCsv } from "../../assets/js/runs/csv.js";
import { below, random, times } from "./helpers.js";

/** Ten pixels a character; a space may end a line, and a line end stands at the end of its piece. */
const measure = {
  of(piece) {
    const parts = piece.split("\n");
    return {
      head: parts[0],
      ends: parts.length - 1,
      tail: parts.length > 1 ? parts[parts.length - 1] : "",
      before: piece.startsWith(" "),
      after: piece.endsWith(" "),
      width: 10 * parts[0].length,
      tailWidth: parts.length > 1 ? 10 * parts[parts.length - 1].length : 0,
    };
  },
};
const lay = (pieces, width, shown = pieces.map((_, i) => i)) => breakLines(pieces, shown, measure, width, 0);
const words = (lines, pieces) => lines.map((line) => pieces.slice(line.first, line.end).join(""));

test("lines break before a word that does not fit, and inside a word that fits nowhere", () => {
  const pieces = ["aa", " bb", " cc", " ddd", "eee"];
  assert.deepEqual(words(lay(pieces, 62), pieces), ["aa bb", " cc", " ddd", "eee"]);
  assert.deepEqual(words(lay(["aaaa", "bbbb", "cccc"], 85), ["aaaa", "bbbb", "cccc"]), ["aaaabbbb", "cccc"]);
});

test("a line end closes its line, blank lines are kept, and its rest begins the next one", () => {
  const lines = lay(["a\n", "b", "\n\n\n  ", "c"], 500);
  assert.deepEqual(
    lines.map((line) => [line.first, line.end, line.tail]),
    [
      [0, 1, ""],
      [1, 3, ""],
      [3, 3, ""],
      [3, 3, ""],
      [3, 4, "  "],
    ],
  );
  assert.equal(lines[4].tailPos, 2);
  assert.ok(!lines[1].soft);
});

test("every token stands on one line, in order; only a word longer than a line may stand out, by one token", () => {
  for (let round = 0; round < 50; round += 1) {
    const pieces = times(400, () => {
      return `${random() < 0.6 ? " " : ""}${"x".repeat(below(9))}${random() < 0.05 ? "\n" : ""}`;
    });
    const width = 150 + below(200);
    let next = 0;
    for (const line of lay(pieces, width)) {
      assert.equal(line.first, next);
      next = line.end;
      const own = pieces.slice(line.first, line.end).map((piece) => measure.of(piece));
      const before = own.slice(0, -1).reduce((sum, piece) => sum + piece.width, 0);
      assert.ok(before <= width);
      if (own.length > 1 && before + own[own.length - 1].width > width) {
        assert.ok(own.slice(1).every((piece) => !piece.before));
      }
    }
    assert.equal(next, pieces.length);
  }
});

test("hidden tokens leave a gap and the shown ones stay in order", () => {
  const pieces = times(50, (i) => ` w${i}`);
  const shown = times(50, (i) => i).filter(() => random() < 0.5);
  const lines = lay(pieces, 200, shown);
  assert.equal(lines[lines.length - 1].end, shown.length);
  for (const line of lines) assert.equal(line.pos, shown[line.first]);
});

test("matches are found without regard to case, and special characters are plain", () => {
  assert.deepEqual(plainMatches("a.b", "A.B axb a.b"), [0, 3, 8, 11]);
  assert.deepEqual(plainMatches("(", "f(x)"), [1, 2]);
  assert.deepEqual(plainMatches("zzz", "abc"), []);
});

test("a match covers the tokens it begins and ends in", () => {
  for (let round = 0; round < 50; round += 1) {
    const pieces = times(1 + below(30), () => "abcab ".slice(0, 1 + below(6)));
    const whole = pieces.join("");
    const starts = pieces.map((_, pos) => pieces.slice(0, pos).join("").length);
    const tokenAt = (offset) => starts.filter((start) => start <= offset).length - 1;
    const bounds = plainMatches("ab", whole);
    const expected = times(bounds.length / 2, (i) => [tokenAt(bounds[2 * i]), tokenAt(bounds[2 * i + 1] - 1)]);
    assert.deepEqual(tokenHits(bounds, starts), expected);
  }
});

for (const sliding of [null, 9, 3])
  for (const growth of [undefined, [10, 40]]) {
    const within = sliding === null ? "" : ` within a sliding window of ${sliding}`;
    const rule = `near, same group, both, sink${within}${growth ? ", growing windows" : ""}`;
    test(`links follow the rule of the mask: ${rule}`, () => checkLinks(sliding, growth));
  }

function checkLinks(sliding, growth) {
  const groups = times(60, () => below(4));
  const [window, sinks, pos] = [5, 2, below(60)];
  const run = {
    numTokens: 60,
    config: { num_sinks: sinks, window_growth: growth },
    layers: [{ sliding_window: sliding, parts: [{ window }] }],
    shareGroup: (_, a, b) => groups[a] === groups[b],
  };
  const [first, last] = growth ?? [1, 1];
  const links = new Links(run, 0, pos, 0);
  for (let other = 0; other < 60; other += 1) {
    const distance = Math.abs(pos - other);
    const near = distance <= Math.floor((window * Math.max(first, Math.min(Math.max(pos, other), last))) / first);
    const shared = groups[pos] === groups[other];
    const sink = Math.min(pos, other) < sinks;
    const cause = near
      ? shared
        ? "local_and_group"
        : "local_only"
      : shared
        ? "group_only"
        : sink
          ? "sink_only"
          : null;
    assert.equal(links.cause(other), distance >= (sliding ?? Infinity) ? null : cause);
  }
  const parts = KEPT_CAUSES.flatMap((cause) => links.back(cause)).sort((a, b) => a - b);
  assert.deepEqual(parts, links.back());
  assert.ok(links.forward().every((other) => other > pos));
}

test("CSV quotes what needs it and ends its lines as spreadsheets expect", () => {
  assert.equal(
    toCsv(
      ["a", "b"],
      [
        [1, null],
        ['x"y', "1,2"],
        ["\n", true],
      ],
    ),
    'a,b\r\n1,\r\n"x""y","1,2"\r\n"\n",true\r\n',
  );
});
