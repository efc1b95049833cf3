// @ts-check
// Creation of SVG elements with attributes, listeners and children.
/** @import { Attributes } from "./types.js" */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Attributes} attributes
 * @param {...(Node | string)} children
 */
export const svg = (tag, attributes, ...children) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, String(value));
  }
  node.append(...children);
  return node;
};
