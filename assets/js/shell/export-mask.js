// @ts-check
// The fields of a mask in the export dialog: layer, heads where they differ, format, and the query tokens whose pairs
// are written.
import { el } from "../core/dom.js";
import { partOf, partTitle, runHead } from "../core/heads.js";
import { exporting as text } from "../strings/export.js";
import { heads as headWords } from "../strings/heads.js";
/** @import { MaskChoicesPayload, MaskLayerPayload, PartPayload } from "../core/payloads.js" */
/** @import { UiEvent } from "../core/types.js" */
/** @import { Choice } from "./export-choice.js" */

/** @typedef {"first" | "last"} End */

/**
 * @param {MaskChoicesPayload} mask
 * @param {Choice} options
 */
const layerOf = ({ layers }, { maskLayer }) =>
  /** @type {MaskLayerPayload} */ (layers.find(({ layer }) => String(layer) === maskLayer));

/**
 * The heads whose mask is written.
 * @param {MaskChoicesPayload} mask
 * @param {Choice} options
 */
function chosenPart(mask, options) {
  const { parts } = layerOf(mask, options);
  return parts[partOf(mask.layers, parts, options.maskHead === "" ? null : Number(options.maskHead))];
}

/**
 * The chosen heads by the first head of the run among them, and all there are to choose from; none where the heads of
 * the layer are alike.
 * @param {MaskChoicesPayload} mask
 * @param {Choice} options
 * @returns {{ chosen: string, heads: [string, string][] }}
 */
export function maskHeads(mask, options) {
  const { parts } = layerOf(mask, options);
  /** @param {PartPayload} part */
  const first = (part) => String(runHead(mask.layers, parts, part.heads[0]));
  if (parts.length === 1) return { chosen: options.maskHead, heads: [] };
  return { chosen: first(chosenPart(mask, options)), heads: parts.map((part) => [first(part), partTitle(part)]) };
}

/**
 * What the server is asked for; it takes a head as the layer numbers it.
 * @param {MaskChoicesPayload} mask
 * @param {Choice} options
 */
export const maskQuestion = (mask, options) => {
  const differ = layerOf(mask, options).parts.length > 1;
  return {
    kind: "mask",
    format: options.maskFormat,
    layer: Number(options.maskLayer),
    head: differ ? chosenPart(mask, options).heads[0] : null,
    first: options.first,
    last: options.last,
  };
};

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
export const maskNotes = (mask, options) => {
  const { parts } = layerOf(mask, options);
  const { heads, pairs } = chosenPart(mask, options);
  const { local_only: near, group_only: shared, local_and_group: both, sink_only: sinks } = pairs;
  const which = parts.length === 1 ? text.layer(options.maskLayer) : text.maskHeads(heads.length);
  const notes = [text.maskSize(which, near + shared + both + sinks, mask.tokens)];
  if (parts.length > 1) notes.push(headWords.choiceHint);
  return el("p", { class: "fx-help" }, [...notes, text.maskNotes[options.maskFormat]].join(" "));
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
