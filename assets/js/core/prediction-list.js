// @ts-check
// The most probable tokens at one place with their probabilities, the real one marked.
import { el } from "./dom.js";
import { format } from "./format.js";
import { visibleToken } from "./labels.js";
import { common } from "../strings/common.js";
/** @import { PredictionPayload } from "./payloads.js" */

/**
 * @param {string} title
 * @param {string} piece
 * @param {PredictionPayload} prediction
 */
export const predictionList = (title, piece, prediction) => {
  const { rank, tokens } = prediction;
  const real = realPlace(piece, prediction);
  return el(
    "section",
    {},
    el("h4", { class: "fx-predictions-title" }, title),
    el(
      "ol",
      {},
      tokens.map(([token, probability], place) =>
        el(
          "li",
          { "data-real": place === real },
          el("code", {}, visibleToken(token)),
          el("span", { class: "fx-number" }, format.percent(probability, probability < 0.1 ? 1 : 0)),
        ),
      ),
    ),
    el("p", { class: "fx-muted" }, common.realRank(visibleToken(piece), format.count(rank))),
  );
};

/**
 * Place of the real token in the list, -1 where it is not: others may be written alike, and those as probable have
 * its rank.
 * @param {string} piece
 * @param {PredictionPayload} prediction
 */
const realPlace = (piece, { rank, tokens }) =>
  tokens.findIndex(([token], place) => place >= rank - 1 && token === piece);
