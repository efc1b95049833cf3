// @ts-check
// Creation of elements with attributes, listeners and children.
/** @import { Attributes, Child, UiEvent } from "./types.js" */

let lastId = 0;

/**
 * @param {string} prefix
 * @returns {string}
 */
export const newId = (prefix) => {
  lastId += 1;
  return `fx-${prefix}-${lastId}`;
};

/**
 * An element with its attributes, listeners (`onclick` and so on) and children; null and false attributes are left out.
 * Text always becomes text nodes: a token such as <script> must stay text.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(typeof child === "number" ? String(child) : child);
  }
  return node;
}

/**
 * Touches the page only where something changed, so that focus, selection and scrolling stay where they are.
 * @param {Element} node
 * @param {string} value
 */
export function setText(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

/**
 * A button; `attributes` may replace the class.
 * @param {Child | Child[]} label
 * @param {(event: UiEvent<MouseEvent>) => unknown} onclick
 * @param {Attributes} [attributes]
 */
export const buttonOf = (label, onclick, attributes = {}) =>
  el("button", { type: "button", class: "fx-button", onclick, ...attributes }, ...[label].flat());

/**
 * A region that scrolls, reachable by keyboard.
 * @param {string} className
 * @param {string} label
 * @param {...(Child | Child[])} children
 */
export const scrollRegion = (className, label, ...children) =>
  el("div", { class: className, tabindex: "0", role: "region", "aria-label": label }, ...children);

/**
 * What stands in place of a list without entries.
 * @param {string} title
 * @param {string} body
 */
export const emptyState = (title, body) =>
  el("div", { class: "fx-empty" }, el("h2", { class: "fx-title" }, title), el("p", {}, body));
