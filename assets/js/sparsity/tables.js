// @ts-check
// The numbers of the Sparsity view as tables.
import { range, sum } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { selectTokens } from "../core/selection.js";
import { partRows } from "../core/heads.js";
import { hintButton } from "../core/tooltip.js";
import { tableOf } from "../core/widgets.js";
import { CAUSES } from "./causes.js";
import { heads as headsText } from "../strings/heads.js";
import { pairs as pairsText, sparsity as text } from "../strings/sparsity.js";
/** @import { Mask } from "../core/mask.js" */
/** @import { LayerPayload } from "../core/payloads.js" */
/** @import { Cause, Child } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */

const tables = pairsText.tables;

/**
 * @param {Mask} mask
 * @param {number} block
 * @param {number} numTokens
 */
const blockRange = (mask, block, numTokens) => [
  block * mask.blockSize,
  Math.min((block + 1) * mask.blockSize, numTokens) - 1,
];

/** @param {Cause[]} causes */
const causeColumns = (causes) => causes.map((cause) => text.causes[cause]);

/** @param {number[]} counts */
const causeCells = (counts) =>
  counts.map((count) => text.pairs(format.count(count), format.percent(count / sum(counts), 1)));

/**
 * @param {Mask} mask
 * @param {number} row
 * @param {number} numTokens
 */
export function rowSelection(mask, row, numTokens) {
  const [first, last] = blockRange(mask, row, numTokens);
  const positions = range(last - first + 1).map((i) => first + i);
  return selectTokens(positions, "row", pairsText.zoom.row(text.range(format.count(first), format.count(last))));
}

/**
 * @param {App} app
 * @param {(index: number) => unknown} open
 */
export function layerTable(app, open) {
  const { run } = app;
  /** @param {number} id @param {number} index */
  const button = (id, index) =>
    buttonOf(id, () => open(index), {
      class: "fx-button fx-row-choose",
      "data-layer": index,
      "aria-label": tables.openLayer(id),
      "aria-current": index === app.layerIndex ? "true" : null,
    });
  /** @param {LayerPayload} layer @returns {Child[]} */
  const mark = (layer) =>
    run.fullLayers.includes(layer.layer)
      ? [el("span", { class: "fx-heads-mark" }, headsText.fullByBudget)]
      : layer.parts.length > 1
        ? [differMark(app, layer)]
        : [];
  const rows = run.layers.map((layer, index) => [
    [button(layer.layer, index), ...mark(layer)],
    format.percent(layer.retained_pairs, 1),
    ...causeCells(CAUSES.map((cause) => layer.pairs[cause])),
  ]);
  return tableOf([text.layerColumn, text.keptColumn, ...causeColumns(CAUSES)], rows);
}

/**
 * That the heads of a layer differ, and how.
 * @param {App} app
 * @param {LayerPayload} layer
 */
const differMark = (app, layer) =>
  el(
    "span",
    { class: "fx-heads-mark" },
    headsText.differ,
    hintButton(app.tooltip, headsText.ofLayer(layer.layer, headsText.differ), partRows(layer.parts)),
  );

/**
 * @param {App} app
 * @param {Mask | null} mask
 */
export function rowTable(app, mask) {
  if (!mask) return "";
  const { numTokens } = app.run;
  /** @param {number} row */
  const button = (row) => {
    const words = text.range(.../** @type {[string, string]} */ (blockRange(mask, row, numTokens).map(format.count)));
    const selection = rowSelection(mask, row, numTokens);
    return buttonOf(words, () => app.toggleSelection(selection), {
      class: "fx-button fx-row-choose",
      "data-row": row,
      "aria-label": tables.selectRow(words),
      "aria-pressed": String(selection.equals(app.selection)),
    });
  };
  const rows = range(mask.numBlocks).map((row) => [button(row), ...causeCells(mask.rowCounts(row))]);
  return tableOf([text.queryColumn, ...causeColumns(mask.causes)], rows);
}
