// @ts-check
// Form fields with labels and hints.
import { el, newId } from "./dom.js";

/**
 * @param {string} label
 * @param {HTMLElement} field
 * @param {Node | null} [hint]
 */
export const labelledField = (label, field, hint = null) =>
  el("div", { class: "fx-field" }, el("label", { for: field.id }, label), hint, field);

/**
 * A few choices as one labelled drop-down.
 * @template {string} Value
 * @param {string} label
 * @param {Record<Value, string>} options
 * @param {string | null} chosen
 * @param {(value: Value) => unknown} changed
 * @param {Node | null} [hint]
 */
export const dropdown = (label, options, chosen, changed, hint = null) => {
  /** @type {HTMLSelectElement} */
  const select = el(
    "select",
    { id: newId("select"), onchange: () => changed(/** @type {Value} */ (select.value)) },
    /** @type {[Value, string][]} */ (Object.entries(options)).map(([value, name]) =>
      el("option", { value, selected: value === chosen }, name),
    ),
  );
  return labelledField(label, select, hint);
};
