import assert from "node:assert/strict";
import { test } from "node:test";
import { extent, lowerBound, mean, median, range, sum } from "../../assets/js/core/arrays.js";
import { format, memorySize, sentence } from "../../assets/js/core/format.js";
import { groupLabel, oneLine, visibleToken } from "../../assets/js/core/labels.js";
import { below, random, times } from "./helpers.js";

const NBSP = "\u00a0";
const MINUS = "\u2212";

test("numbers have separators, a true minus and the requested digits", () => {
  assert.equal(format.count(1234567), "1,234,567");
  assert.equal(format.decimal(-1.255, 1), `${MINUS}1.3`);
  assert.equal(format.percent(0.1234, 1), `12.3${NBSP}%`);
  assert.equal(format.ratio(2.345), "2.35×");
  assert.equal(format.ratio(23.45), "23.5×");
  assert.equal(format.perplexity(99.999), "100.00");
  assert.equal(format.perplexity(123.456), "123.5");
  assert.equal(format.ms(0.123), `0.12${NBSP}ms`);
  assert.equal(format.ms(1234.5), `1,235${NBSP}ms`);
});

test("what is written as nothing has no minus", () => {
  assert.equal(format.decimal(-0.003, 2), "0.00");
  assert.equal(format.decimal(-0.0004, 3), "0.000");
  assert.equal(format.decimal(-0.006, 2), `${MINUS}0.01`);
  assert.equal(format.percent(-0.0002, 1), `0.0${NBSP}%`);
  assert.equal(format.percent(-0.05), `${MINUS}5${NBSP}%`);
});

test("a signed number shows its sign unless it is written as zero", () => {
  assert.equal(format.signed(0.0004, 3), "0.000");
  assert.equal(format.signed(-0.0004, 3), "0.000");
  assert.equal(format.signed(1234.5, 1), "+1,234.5");
  assert.equal(format.signed(-0.5, 2), `${MINUS}0.50`);
  assert.equal(format.signedPercent(-0.105), `${MINUS}10.5${NBSP}%`);
});

test("durations have two units at most", () => {
  const plain = (seconds) => format.duration(seconds).replaceAll(NBSP, " ");
  assert.equal(plain(45.4), "45 s");
  assert.equal(plain(130), "2 min 10 s");
  assert.equal(plain(3900), "1 h 5 min");
  assert.equal(plain(86400 * 2 + 3 * 3600), "2 d 3 h");
  assert.equal(plain(-5), "0 s");
});

test("dates that are none stay as they are", () => {
  assert.equal(format.date("soon"), "soon");
  assert.match(format.date("2026-03-05T10:20:00Z"), /Mar 2026/);
});

test("memory and sentences", () => {
  assert.equal(memorySize(3 * 2 ** 20), `3${NBSP}MiB`);
  assert.equal(memorySize(1.5 * 2 ** 30), `1.50${NBSP}GiB`);
  assert.equal(sentence("the file is gone"), "The file is gone.");
  assert.equal(sentence("Wait…"), "Wait…");
});

test("group labels count like columns of a spreadsheet", () => {
  assert.deepEqual([0, 25, 26, 51, 52, 701, 702].map(groupLabel), ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
  const labels = times(800, groupLabel);
  assert.equal(new Set(labels).size, 800);
});

test("invisible characters of a token become visible", () => {
  assert.equal(visibleToken(" a\n"), "␣a\\n");
  assert.equal(visibleToken("\u200b"), "\\u200b");
  assert.equal(visibleToken("<b>é中🙂"), "<b>é中🙂");
  assert.equal(oneLine("a\r\nb\tc\n"), "a↵b⇥c↵");
});

test("functions over arrays agree with their definitions", () => {
  const values = times(1 + below(50), () => random() * 10 - 5);
  const sorted = [...values].sort((a, b) => a - b);
  assert.deepEqual(extent(values), [sorted[0], sorted[sorted.length - 1]]);
  assert.ok(Math.abs(mean(values) - sum(values) / values.length) < 1e-12);
  const middle = [sorted[Math.floor((values.length - 1) / 2)], sorted[Math.floor(values.length / 2)]];
  assert.equal(median(values), middle[0] === middle[1] ? middle[0] : (middle[0] + middle[1]) / 2);
  const limit = random() * 10 - 5;
  assert.equal(
    lowerBound(sorted.length, (i) => sorted[i] < limit),
    sorted.filter((value) => value < limit).length,
  );
  assert.deepEqual(range(3), [0, 1, 2]);
});

test("what rounds to nothing has no sign", () => {
  assert.equal(format.percent(-1e-9, 1), "0.0\u00a0%"); // such as 1 minus shares that add up to a little more
  assert.equal(format.decimal(-0.001, 2), "0.00");
  assert.equal(format.decimal(-0.01, 2), "\u22120.01");
});
