// @ts-check
// The fields of a mask in the export dialog: layer, format, and the query tokens whose pairs are written.
import { el } from "../core/dom.js";
import { exporting as text } from "../strings/export.js";
/** @import { MaskChoicesPayload } from "../core/payloads.js" */
/** @import { UiEvent } from "../core/types.js" */
/** @import { Choice } from "./export-choice.js" */

/** @typedef {"first" | "last"} End */

/**
 * What the server is asked for.
 * @param {Choice} options
 */
export const maskQuestion = ({ maskFormat, maskLayer, first, last }) => ({
  kind: "mask",
  format: maskFormat,
  layer: Number(maskLayer),
  first,
  last,
});

/**
 * Two numbers that are typed; they stay as they are meanwhile, so that nothing takes the focus.
 * @param {Choice} options
 * @param {(name: End, value: string) => unknown} typed
 */
export const endFields = (options, typed) => {
  /**
   * @param {End} name
   * @param {string} label
   */
  const field = (name, label) => {
    /** @param {UiEvent<Event>} event */
    const oninput = (event) => typed(name, event.target.value);
    const more = { type: "text", inputmode: "numeric", autocomplete: "off", "data-field": name, oninput };
    return el(
      "label",
      { class: "fx-entry" },
      el("span", {}, label),
      el("input", { class: "fx-input", value: options[name], ...more }),
    );
  };
  return el("div", { class: "fx-export-ends" }, field("first", text.first), field("last", text.last));
};

/**
 * How much the file holds, and how it is read.
 * @param {MaskChoicesPayload} mask
 * @param {Choice} options
 */
export const maskNotes = ({ layers, tokens }, { maskLayer, maskFormat }) => {
  const pairs = layers.find(({ layer }) => String(layer) === maskLayer)?.pairs ?? 0;
  const notes = [text.maskSize(maskLayer, pairs, tokens), text.maskNotes[maskFormat]];
  return el("p", { class: "fx-help" }, notes.join(" "));
};

/**
 * Mark the field that is wrong, or both where it is their order.
 * @param {HTMLElement} fields
 * @param {boolean} wrong
 * @param {number} tokens
 */
export const markEnds = (fields, wrong, tokens) => {
  const inputs = /** @type {HTMLInputElement[]} */ ([...fields.querySelectorAll(".fx-export-ends input")]);
  const bad = inputs.filter(({ value }) => !/^\d+$/.test(value.trim()) || Number(value) >= tokens);
  for (const input of inputs)
    input.setAttribute("aria-invalid", String(wrong && (bad.length === 0 || bad.includes(input))));
};
