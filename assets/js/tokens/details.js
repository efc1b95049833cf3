// @ts-check
// The groups, probabilities and losses of one token, for its tooltip.
import { range } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { namedLabel, tokenChips } from "../core/group-names.js";
import { groupLabel, isBytes } from "../core/labels.js";
import { shareBar } from "../core/widgets.js";
import { reading, tokens as text } from "../strings/tokens.js";
/** @import { Run } from "../core/run.js" */

/**
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} pos
 * @param {number} part of the layer's heads
 */
export const tokenDetails = (run, layerIndex, pos, part) => {
  const words = text.tooltip;
  return [
    el(
      "div",
      { class: "fx-tooltip-head" },
      el("code", {}, run.tokenLabel(pos)),
      el("span", { class: "fx-muted" }, words.position(format.count(pos), format.count(run.numTokens - 1))),
    ),
    el(
      "div",
      { class: "fx-tooltip-row" },
      el("span", { class: "fx-muted" }, words.memberOf),
      el(
        "span",
        {},
        tokenChips(run, layerIndex, pos, part),
      ),
    ),
    ...(run.hasLayer(layerIndex)
      ? [el("div", { class: "fx-muted" }, words.probabilities), probabilityBars(run, layerIndex, pos)]
      : [el("div", { class: "fx-muted" }, reading.loadingLayer)]),
    el("div", { class: "fx-tooltip-row" }, el("span", { class: "fx-muted" }, words.loss), lossWords(run, pos)),
  ];
};

/**
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} pos
 */
function probabilityBars(run, layerIndex, pos) {
  const bars = range(run.numGroups).map((group) => {
    const probability = run.probability(layerIndex, pos, group);
    return el(
      "div",
      { class: "fx-probability" },
      el("span", {}, groupLabel(group)),
      shareBar(/** @type {number} */ (probability), `g${group}`),
      el("span", { class: "fx-number" }, format.percent(/** @type {number} */ (probability))),
    );
  });
  return el("div", { class: run.numGroups > 8 ? "fx-probabilities fx-many" : "fx-probabilities" }, bars);
}

/**
 * A token and its most probable group, as a screen reader says them.
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} pos
 */
export function spokenToken(run, layerIndex, pos) {
  const piece = run.shown[pos];
  const bare = isBytes(run.pieces[pos]) ? run.tokenLabel(pos) : piece.trim();
  const ends = piece.includes("\n") ? [reading.lineBreak] : [];
  const words = [...(bare === "" ? [] : [bare]), ...ends];
  const group = namedLabel(run, layerIndex, run.top(layerIndex, pos));
  return reading.spoken(words.length > 0 ? words.join(", ") : reading.space, group);
}

/**
 * @param {Run} run
 * @param {number} pos
 */
export const lossWords = (run, pos) => {
  const difference = run.lossDifference(pos);
  if (difference === null) return el("span", {}, text.tooltip.noLoss);
  const losses = text.tooltip.losses(
    format.decimal(/** @type {number} */ (run.losses.full[pos]), 2),
    format.decimal(/** @type {number} */ (run.losses.focus[pos]), 2),
  );
  return el("span", {}, `${losses} ${text.tooltip.difference(format.signed(difference, 2))}`);
};
