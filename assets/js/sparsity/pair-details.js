// @ts-check
// One pair of tokens of the mask: why it is computed or dropped, and its two tokens for a tooltip.
import { causeSwatch } from "./causes.js";
import { range } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupLabel } from "../core/labels.js";
import { near } from "../core/pair-rule.js";
import { tokenSummary } from "../core/token-text.js";
import { pairs as pairsText } from "../strings/sparsity.js";
/** @import { Run } from "../core/run.js" */
/** @import { Cause } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */

const text = pairsText.zoom;

/**
 * The cause of a pair in words.
 * @param {App} app
 * @param {number} query
 * @param {number} key
 * @param {Cause} cause
 * @returns {string}
 */
export function pairReason({ run, layerIndex, part }, query, key, cause) {
  const { sliding_window: sliding, parts } = run.layers[layerIndex];
  const { window, full } = parts[part];
  const apart = text.tokensApart(format.count(query - key));
  if (cause === "dropped" && sliding !== null && query - key >= sliding)
    return text.beyond(apart, format.count(sliding));
  if (full && cause !== "dropped") return text.fullReason(apart);
  return text.reasons[cause](apart, sharedWords(run, layerIndex, part, query, key), {
    ...run.config,
    window: near(window, query, run.config.window_growth),
  });
}

/**
 * What two tokens share for some heads of a layer; tokens linked by hand need no group for that.
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} part
 * @param {number} query
 * @param {number} key
 */
function sharedWords(run, layerIndex, part, query, key) {
  const shared = range(run.numGroups).filter(
    (group) => run.belongs(layerIndex, query, group, part) && run.belongs(layerIndex, key, group, part),
  );
  if (shared.length > 0) return text.inGroups(shared.map(groupLabel).join(", "));
  const linked = run.hasLayer(layerIndex) && run.info.changes.some((change) => change.startsWith("see:"));
  return linked ? text.linked : text.inOneGroup; // of a layer on its way not every group is known
}

/**
 * @param {App} app
 * @param {number} query
 * @param {number} key
 * @param {Cause} cause
 */
export function describePair(app, query, key, cause) {
  /** @param {string} label @param {number} pos */
  const side = (label, pos) =>
    el(
      "div",
      { class: "fx-pair-side" },
      el("span", { class: "fx-muted" }, label),
      el("div", {}, tokenSummary(app.run, pos)),
    );
  return [
    el(
      "div",
      { class: "fx-tooltip-head" },
      el("strong", {}, causeSwatch(cause), ` ${pairReason(app, query, key, cause)}`),
    ),
    side(text.query, query),
    side(text.key, key),
  ];
}
