// The picture of the mask: questions that were asked before the layer changed, and buttons before there is a picture.
import assert from "node:assert/strict";
import { test } from "node:test";
import { later, settled } from "./page.js";
import { SparsityView } from "../../assets/js/sparsity/view.js";
import { ZoomMask } from "../../assets/js/sparsity/mask.js";
import { randomRun } from "./helpers.js";

const AREA = { rows: [10, 30], keys: [0, 20] };

const TILE = { block_size: 4, num_rows: 1, num_columns: 1, causes: ["dropped"], bytes: 1, counts: "AA==" };

function maskOf() {
  const question = later();
  const { run } = randomRun();
  const app = { run, layerIndex: 0, part: 0, root: { dataset: {} }, isOpen: () => true };
  app.request = () => question.promise;
  const mask = new ZoomMask(
    app,
    () => ({}),
    () => [],
  );
  const drawn = [];
  Object.assign(mask, { run, whole: {}, draw: (tile) => drawn.push(tile) });
  return { mask, app, question, drawn };
}

test("a closer look at a layer is not drawn any more once another layer is on its way", async () => {
  const { mask, question, drawn } = maskOf();
  mask.show(AREA);
  const view = { mask, status: mask.level };
  SparsityView.prototype.wait.call(view);
  question.answer({ ...TILE, rows: [10, 31], keys: [0, 21] });
  await settled();
  assert.deepEqual(drawn, []);
  assert.ok(mask.plot.classList.contains("fx-stale"));
});

test("the buttons wait for the first picture", () => {
  const { mask } = maskOf();
  assert.deepEqual(
    Object.values(mask.buttons).map((button) => button.disabled),
    [true, true, true],
  );
});

test("a rectangle as flat as a line leaves the picture and what is said of it alike", () => {
  const { mask } = maskOf();
  const areas = [];
  mask.soon = (area) => areas.push(area);
  mask.view = AREA;
  mask.dragged({ "xaxis.range[0]": 4.2, "xaxis.range[1]": 9.8 });
  mask.dragged({ shapes: [] });
  assert.deepEqual(areas, [{ rows: [10, 30], keys: [-3, 17] }]);
});

test("the picture of the layer before answers nobody while another is on its way or could not be had", () => {
  const { mask, app } = maskOf();
  const chosen = [];
  app.toggleSelection = (selection) => chosen.push(selection);
  mask.describe = () => "words";
  const span = () => [4, 7];
  mask.tile = { blockSize: 4, blockCounts: () => [3], rowSpan: span, keySpan: span };
  const point = { pointNumber: [0, 0] };
  mask.wait();
  assert.equal(mask.hover(point), null);
  mask.click(point);
  assert.equal(chosen.length, 0);
  Object.assign(mask, { updateLevel() {}, heatmap: () => ({}), layout: () => ({}), addListeners() {} });
  ZoomMask.prototype.draw.call(mask, mask.tile);
  assert.equal(mask.hover(point), "words");
  mask.click(point);
  assert.equal(chosen.length, 1);
});
