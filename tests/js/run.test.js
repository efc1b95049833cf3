import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeBase64, expectLength } from "../../assets/js/core/bytes.js";
import { Mask } from "../../assets/js/core/mask.js";
import { withoutGroups } from "../../assets/js/core/group-names.js";
import { Run } from "../../assets/js/core/run.js";
import { budget } from "../../assets/js/strings/budget.js";
import { shell } from "../../assets/js/strings/shell.js";
import { MaskTile } from "../../assets/js/sparsity/tile.js";
import { base64, below, random, randomCells, randomRun, times } from "./helpers.js";

test("base64 decodes to the bytes it was made of", () => {
  for (const length of [0, 1, 2, 3, 1000]) {
    const bytes = Uint8Array.from({ length }, () => below(256));
    assert.deepEqual([...decodeBase64(base64(bytes))], [...bytes]);
  }
});

test("a wrong length is an error with both numbers", () => {
  assert.equal(expectLength("top", [1, 2], 2).length, 2);
  assert.throws(() => expectLength("top", [1, 2], 3), /top has 2 entries where 3 were expected/);
});

test("tops, losses and their differences are those of the payload", () => {
  const { run, tops, losses } = randomRun();
  times(3 * 40, (i) => assert.equal(run.top(Math.floor(i / 40), i % 40), tops[i]));
  assert.equal(run.losses.full[0], null);
  assert.equal(run.lossDifference(0), null);
  const expected = Math.fround(losses.focus[6]) - Math.fround(losses.full[6]);
  assert.ok(Math.abs(run.lossDifference(7) - expected) < 1e-6);
  assert.equal(run.timeRatio("attention"), 0.5);
  assert.equal(run.timeRatio("routing"), null);
});

test("a payload with too few tokens is refused", () => {
  const { payload } = randomRun();
  assert.throws(() => new Run({ ...payload, pieces: payload.pieces.slice(1) }, () => {}), /entries where/);
});

for (const numGroups of [3, 8, 16, 33, 64]) {
  test(`membership and shared groups of ${numGroups} groups`, () => {
    const numTokens = 30;
    const made = randomCells(numTokens, numGroups);
    const { run } = randomRun({ numTokens, layerIds: [2], numGroups, cells: { 2: made.payload } });
    assert.ok(run.hasLayer(0));
    for (let pos = 0; pos < numTokens; pos += 1) {
      for (let group = 0; group < numGroups; group += 1) {
        assert.equal(run.belongs(0, pos, group), made.groups[pos][group]);
        assert.equal(run.probability(0, pos, group), made.probabilities[pos * numGroups + group] / 255);
      }
      const other = below(numTokens);
      const shared = made.groups[pos].some((member, group) => member && made.groups[other][group]);
      assert.equal(run.shareGroup(0, pos, other, 0), shared);
      assert.ok(Math.abs(run.entropy(0, pos) - (made.entropy[pos] / 255) * Math.log(numGroups)) < 1e-12);
    }
  });
}

test("a run knows whether layers slide in its text, and whether the model has others", () => {
  const { run, payload } = randomRun({ numTokens: 40, layerIds: [0, 1] });
  const of = (config, slidings, layer_ids = payload.layer_ids) => {
    const layers = slidings.map((sliding_window, i) => ({ ...payload.layers[i], sliding_window }));
    return new Run({ ...payload, run: { ...payload.run, config: { ...run.config, ...config } }, layers, layer_ids });
  };
  assert.ok(!of({}, [null, 40]).slides);
  assert.ok(of({}, [null, 39]).slides);
  assert.ok(!of({ layers: null }, [null, null]).hasOtherLayers);
  assert.ok(of({ layers: [0, 1] }, [null, null]).hasOtherLayers);
  assert.ok(of({ layers: null }, [null, null], [0, 5]).hasOtherLayers);
});

test("where layers slide, no ratio to full attention is said", () => {
  const words = (slides) => budget.layers("20 %", "", "5.0×", slides).join("");
  assert.equal(words(false), "All layers with groups keep 20 %: full attention computes 5.0× as many pairs.");
  assert.ok(!words(true).includes("5.0×"));
  assert.match(words(true), /^All layers with groups keep 20 %\. Pairs beyond a layer's own sliding window/);
  assert.equal(shell.answer.kept("20 %", false), "20 % of the token pairs");
  assert.equal(shell.answer.kept("20 %", true), "20 % of the token pairs in the layers it runs in");
});

test("a token has the groups of the heads that are looked at, and none for heads that use none", () => {
  const { payload } = randomRun({ layerIds: [2], numGroups: 8 });
  const byte = (bits) => base64(Uint8Array.from({ length: 40 }, () => bits));
  payload.top = byte(4);
  const part = { heads: [], window: 4, full: false };
  payload.layers[0].parts = [
    { ...part, top_k: 1 },
    { ...part, top_k: 2 },
    { ...part, top_k: 0 },
    { ...part, top_k: null, full: true },
    { ...part, top_k: 0 },
  ];
  const cells = { ...randomCells(40, 8).payload, membership: byte(0b10000) };
  const part_memberships = { 1: byte(0b10010), 2: byte(0), 4: byte(0b11111111) }; // a text sink is in all groups
  const whole = new Run({ ...payload, cells: { 2: { ...cells, part_memberships } } }, () => {});
  const groups = (run) => times(5, (number) => run.groupsOf(0, 7, number));
  assert.deepEqual(groups(whole), [[4], [4, 1], [], [], [4, 0, 1, 2, 3, 5, 6, 7]]);
  assert.deepEqual(groups(new Run(payload, () => {})), [[4], [4], [], [], []]);
  assert.deepEqual(payload.layers[0].parts.slice(2, 4).map(withoutGroups), [
    "no group: these heads use none",
    "no group: full attention",
  ]);
});

test("a layer is requested once and then kept; a failure can be requested again", async () => {
  const { run, requests, answers } = randomRun();
  await assert.rejects(run.whenLayer(1), /no answer/);
  assert.equal(run.probability(1, 0, 0), null);
  answers.layer_cells = () => randomCells(40, 8).payload;
  await Promise.all([run.whenLayer(1), run.whenLayer(1)]);
  await run.whenLayer(1);
  assert.deepEqual(
    requests,
    times(2, () => ["layer_cells", { layer: 5 }]),
  );
  assert.ok(run.hasLayer(1) && !run.hasLayer(0));
});

test("answers about the whole run are requested once", async () => {
  const { run, requests, answers } = randomRun();
  await assert.rejects(run.requestOnce("word_classes"), /no answer/);
  answers.word_classes = () => ({ names: ["name"], classes: "" });
  assert.equal(await run.requestOnce("word_classes"), await run.requestOnce("word_classes"));
  assert.equal(requests.length, 2);
});

test("company is 1 where groups never change and the share of followers elsewhere", () => {
  const { run, tops } = randomRun({ numTokens: 60, layerIds: [0, 1], numGroups: 3 });
  const company = run.trajectoryConsistency();
  times(60, (pos) => {
    const same = times(60, (i) => i).filter((i) => tops[i] === tops[pos]);
    const follow = same.filter((i) => tops[60 + i] === tops[60 + pos]);
    assert.ok(Math.abs(company[pos] - follow.length / same.length) < 1e-6);
  });
});

test("block counts of a mask stand in the lower triangle, cause by cause", () => {
  const causes = ["a", "b"];
  const [blocks, cells] = [4, 10];
  const counts = Uint32Array.from({ length: cells * 2 }, () => below(1000));
  const mask = new Mask({ block_size: 8, num_blocks: blocks, causes, counts: base64(counts) });
  let cell = 0;
  for (let row = 0; row < blocks; row += 1) {
    const sums = [0, 0];
    for (let column = 0; column <= row; column += 1) {
      assert.deepEqual(mask.blockCounts(row, column), [counts[cell], counts[cells + cell]]);
      sums[0] += counts[cell];
      sums[1] += counts[cells + cell];
      cell += 1;
    }
    assert.deepEqual(mask.rowCounts(row), sums);
  }
  assert.equal(mask.matrix(() => 1)[0][1], null);
  assert.throws(() => new Mask({ block_size: 8, num_blocks: 5, causes, counts: base64(counts) }), RangeError);
});

for (const [bytes, Words] of [
  [1, Uint8Array],
  [2, Uint16Array],
  [4, Uint32Array],
]) {
  test(`a tile of ${bytes}-byte counts`, () => {
    const [rows, columns] = [5, 7];
    const counts = Words.from({ length: rows * columns * 2 }, () => below(200));
    const tile = new MaskTile({
      block_size: 3,
      rows: [6, 20],
      keys: [0, 21],
      num_rows: rows,
      num_columns: columns,
      causes: ["a", "b"],
      bytes,
      counts: base64(counts),
    });
    const [row, column] = [below(rows), below(columns)];
    const at = row * columns + column;
    assert.deepEqual(tile.blockCounts(row, column), [counts[at], counts[rows * columns + at]]);
    assert.deepEqual(tile.rowSpan(0), [6, 8]);
    assert.deepEqual(tile.rowSpan(4), [18, 19]); // the last block ends with the rectangle
    assert.deepEqual(tile.keySpan(6), [18, 20]);
    assert.ok(random() < 1);
  });
}

test("layers loaded ahead never put out the one on screen, however large they are", async () => {
  const { run } = randomRun({ layerIds: times(9, (layer) => layer) });
  run.load = async (layerIndex) => {
    run.cells[layerIndex] = { bytes: 40 * 2 ** 20 };
    run.loadedLayers.push(layerIndex);
    run.markUsed(layerIndex);
  };
  await run.whenLayer(4);
  await run.prefetchAround(4);
  assert.ok(run.hasLayer(4), "else whoever selects a token waits for a layer that nobody asks for");
  assert.equal(run.loadedLayers.length, 2);
});
