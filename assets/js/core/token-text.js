// @ts-check
// One token with its context, for tooltips and lists.
import { el } from "./dom.js";
import { format } from "./format.js";
import { oneLine } from "./labels.js";
import { tokens as tokensText } from "../strings/tokens.js";
/** @import { Run } from "./run.js" */
/** @import { Child } from "./types.js" */

const CONTEXT_REACH = 5;

/**
 * @param {Run} run
 * @param {number} pos
 * @param {...Child} more
 */
export const tokenSummary = (run, pos, ...more) => {
  return [
    el(
      "div",
      { class: "fx-tooltip-head" },
      el("code", {}, run.tokenLabel(pos)),
      el(
        "span",
        { class: "fx-muted" },
        tokensText.tooltip.position(format.count(pos), format.count(run.numTokens - 1)),
      ),
    ),
    contextLine(run, pos),
    ...more,
  ];
};

/**
 * The marked token with a few neighbours; its leading space stays outside the mark, where it looks like a space.
 * @param {Run} run
 * @param {number} pos
 */
export const contextLine = (run, pos) => {
  const { before, token, after } = run.context(pos, CONTEXT_REACH);
  const space = token.trim() && token.startsWith(" ") ? " " : "";
  const lead = pos > CONTEXT_REACH ? "… " : "";
  const tail = pos + CONTEXT_REACH + 1 < run.numTokens ? " …" : "";
  const mark = el("mark", {}, oneLine(token.slice(space.length)));
  return el(
    "p",
    { class: "fx-context" },
    lead,
    oneLine(before.trimStart()),
    space,
    mark,
    oneLine(after.trimEnd()),
    tail,
  );
};

/**
 * One end of a link: which end it is, and its token in context.
 * @param {Run} run
 * @param {string} label
 * @param {number} pos
 */
export const linkEnd = (run, label, pos) =>
  el("div", { class: "fx-link-side" }, el("span", { class: "fx-muted" }, label), contextLine(run, pos));
