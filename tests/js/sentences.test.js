// Sentences of the Tokens and Sparsity views where a count is one, or none.
import assert from "node:assert/strict";
import { test } from "node:test";
import "./page.js";
import { TokenFilter } from "../../assets/js/tokens/filter.js";
import { countRows } from "../../assets/js/sparsity/causes.js";
import { SparsityView } from "../../assets/js/sparsity/view.js";
import { ZoomMask } from "../../assets/js/sparsity/mask.js";
import { rowSelection, rowTable } from "../../assets/js/sparsity/tables.js";
import { MaskTile } from "../../assets/js/sparsity/tile.js";
import { pairs, sparsity } from "../../assets/js/strings/sparsity.js";
import { legend, reading } from "../../assets/js/strings/tokens.js";
import { times } from "./helpers.js";

/** Nine tokens in blocks of eight: the last block has one. */
const MASK = {
  blockSize: 8,
  numBlocks: 2,
  causes: ["local_only", "dropped"],
  blockCounts: () => [1, 0],
  rowCounts: () => [1, 0],
};

test("a block of one token is called by its number, not by a range", () => {
  const tile = MaskTile.whole(MASK, 9);
  const [title] = SparsityView.prototype.describeBlock(tile, 1, 1);
  assert.equal(title.textContent, "query 8, key 8");
  assert.equal(SparsityView.prototype.describeBlock(tile, 1, 0)[0].textContent, "query 8, keys 0–7");
  assert.equal(rowSelection(MASK, 1, 9).origin.label, "query 8");
  assert.equal(rowSelection(MASK, 0, 9).origin.label, "queries 0–7");
  const app = { run: { numTokens: 9 }, selection: null };
  const buttons = rowTable(app, MASK).querySelectorAll("button");
  assert.deepEqual(
    buttons.map((button) => [button.textContent, button.getAttribute("aria-label")]),
    [
      ["0–7", "Select queries 0–7"],
      ["8", "Select query 8"],
    ],
  );
  assert.ok(countRows("", MASK.causes, [1, 0]));
});

test("a click on the mask names the one query, or the one key, that it selects", () => {
  const chosen = [];
  const mask = Object.assign(Object.create(ZoomMask.prototype), {
    tile: MaskTile.whole(MASK, 9),
    app: { toggleSelection: ({ origin }) => chosen.push(origin.label) },
  });
  for (const clicked of ["row", "column", "block"]) {
    mask.clicked = clicked;
    mask.click({ pointNumber: [1, 1] });
    mask.click({ pointNumber: [1, 0] });
  }
  assert.deepEqual(chosen, ["query 8", "query 8", "key 8", "keys 0–7", "query 8 and key 8", "query 8 and keys 0–7"]);
});

test("one of a thing is not several", () => {
  assert.deepEqual(["1", "2"].map(legend.times), ["once", "2 times"]);
  assert.equal(reading.detail.more("1"), ", and 1 more range");
  assert.equal(reading.detail.backTotal("1", "1", "100 %"), "1 of 1 token up to here (100 %), itself included");
  assert.equal(reading.detail.forwardTotal("0", "1", "0 %"), "0 of 1 later token (0 %)");
  assert.equal(pairs.distance.binTitle("1", "1"), "1 token apart, 1 pair");
  assert.equal(pairs.distance.binTitle("2–3", "5"), "2–3 tokens apart, 5 pairs");
  assert.equal(pairs.distance.binTitleMean("1", "7", "1"), "1 token apart, 7 pairs in the one layer");
  assert.equal(pairs.arranged.kept("1", "100 %", pairs.arranged.all, ""), "1 pair is kept, 100 % of all. ");
  assert.equal(pairs.zoom.inGroups("A, B"), "both are in groups A, B");
  assert.equal(pairs.zoom.inGroups("AB"), "both are in group AB");
});

test("one sink, and none, are named as such", () => {
  const hint = (sinks) => sparsity.causeHints("16", sinks, null).sink_only;
  assert.deepEqual(
    [0, 1, 4].map(hint),
    [
      "Kept because the key is a sink: this run has none",
      "Kept because the key is the first token",
      "Kept because the key is one of the first 4 tokens",
    ],
  );
  const reason = (sinks) => pairs.zoom.reasons.sink_only("", "", { num_sinks: sinks });
  assert.deepEqual([1, 4].map(reason), [
    "Kept: the key is the first token",
    "Kept: the key is one of the first 4 tokens",
  ]);
});

test("a filter that one token passes selects it by its number", () => {
  const chosen = [];
  const filter = Object.create(TokenFilter.prototype);
  filter.app = { select: ({ origin }) => chosen.push(origin.label) };
  for (const count of [1, 2]) {
    filter.positions = () => times(count, (i) => 1000 + i);
    filter.selectAll();
  }
  assert.deepEqual(chosen, ["token 1,000", "tokens that pass the filter"]);
});
