// @ts-check
// Small elements that all views use: chips, bars, choices, status lines, tables.
import { buttonOf, el, newId } from "./dom.js";
import { groupLabel } from "./labels.js";
import { common } from "../strings/common.js";
/** @import { Attributes, Child, LazyDetails } from "./types.js" */

/**
 * @param {number} group
 * @param {string} [extraClass]
 */
export const groupChip = (group, extraClass = "") =>
  el("span", { class: `fx-chip ${extraClass}`.trim(), "data-shade": `g${group}` }, groupLabel(group));

/**
 * @param {number} share
 * @param {string} shade
 */
export const shareBar = (share, shade) =>
  el(
    "span",
    { class: "fx-bar", "data-shade": shade, "aria-hidden": "true" },
    el("span", { class: "fx-bar-fill", style: `width:${Math.min(100, share * 100).toFixed(1)}%` }),
  );

/**
 * Radio buttons drawn as one segmented control.
 * @template {string} Value
 * @param {string} label
 * @param {Record<Value, string>} options
 * @param {string | null} chosen
 * @param {(value: Value) => unknown} changed
 * @returns {HTMLElement}
 */
export const choiceOf = (label, options, chosen, changed) => {
  const name = newId("choice");
  const entries = /** @type {[Value, string][]} */ (Object.entries(options));
  const inputs = entries.map(([value, text]) =>
    el(
      "label",
      { class: "fx-choice-option" },
      el("input", { type: "radio", name, value, checked: value === chosen, onchange: () => changed(value) }),
      el("span", {}, text),
    ),
  );
  return el(
    "div",
    { class: "fx-choice", role: "radiogroup", "aria-label": label },
    el("span", { class: "fx-choice-label" }, label),
    el("div", { class: "fx-choice-options" }, inputs),
  );
};

/**
 * @param {string} message
 * @param {(() => unknown) | null} [retry]
 */
export const alertBox = (message, retry) =>
  el("div", { class: "fx-alert", role: "alert" }, el("p", {}, message), retry ? buttonOf(common.retry, retry) : null);

/** @param {string} message */
export const progressBox = (message) =>
  el(
    "div",
    { class: "fx-progress", role: "status" },
    el("p", {}, message),
    el("div", { class: "fx-progress-track", "aria-hidden": "true" }, el("span")),
  );

/**
 * @param {(Child | Child[])[]} columns
 * @param {(Child | Child[])[][]} rows
 * @param {Attributes} [attributes]
 */
export const tableOf = (columns, rows, attributes = {}) =>
  el(
    "table",
    { class: "fx-table", ...attributes },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        columns.map((column) => el("th", { scope: "col" }, column)),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map(([head, ...cells]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, head),
          cells.map((cell) => el("td", {}, cell)),
        ),
      ),
    ),
  );

/**
 * Long tables are built only when somebody opens them.
 * @param {string} summary
 * @param {() => Node | string} build
 * @returns {LazyDetails}
 */
export const lazyDetails = (summary, build) => {
  const body = el("div", { class: "fx-table-scroll", tabindex: "0", role: "region", "aria-label": summary });
  const details = el("details", { class: "fx-details" }, el("summary", {}, summary), body);
  const refresh = () => details.open && body.replaceChildren(build());
  details.addEventListener("toggle", refresh);
  return Object.assign(details, { refresh });
};
