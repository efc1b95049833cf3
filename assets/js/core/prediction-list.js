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
export const predictionList = (title, piece, { rank, tokens }) =>
  el(
    "section",
    {},
    el("h4", { class: "fx-predictions-title" }, title),
    el(
      "ol",
      {},
      tokens.map(([token, probability]) =>
        el(
          "li",
          { "data-real": token === piece },
          el("code", {}, visibleToken(token)),
          el("span", { class: "fx-number" }, format.percent(probability, probability < 0.1 ? 1 : 0)),
        ),
      ),
    ),
    el("p", { class: "fx-muted" }, common.realRank(visibleToken(piece), format.count(rank))),
  );
