// @ts-check
// The theme (light or dark) of a root element and the colours its style sheet defines.
/** @import { Theme } from "./types.js" */

/**
 * @param {Element} root
 * @returns {Theme}
 */
export const themeOf = (root) => (root.closest(".dark") ? "dark" : "light");

/**
 * @param {Element} root
 * @param {string} name
 * @returns {string}
 */
export const cssColour = (root, name) => getComputedStyle(root).getPropertyValue(`--fx-${name}`).trim();

/**
 * @param {HTMLElement} root
 * @param {() => unknown} changed
 * @returns {MutationObserver}
 */
export const watchTheme = (root, changed) => {
  let theme = themeOf(root);
  const observer = new MutationObserver(() => {
    if (themeOf(root) === theme) return;
    theme = themeOf(root);
    changed();
  });
  for (let node = /** @type {Element | null} */ (root); node; node = node.parentElement) {
    observer.observe(node, { attributes: true, attributeFilter: ["class"] });
  }
  return observer;
};
