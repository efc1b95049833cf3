// @ts-check
// The colour swatch of a training.
import { el } from "../core/dom.js";

/** @param {string} colour */
export const runSwatch = (colour) =>
  el("span", { class: "fx-run-swatch", style: `background:${colour}`, "aria-hidden": "true" });
