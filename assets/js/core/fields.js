// @ts-check
// Form fields with labels and hints.
import { el, newId } from "./dom.js";

export const labelledField = (label, field, hint = null) =>
  el("div", { class: "fx-field" }, el("label", { for: field.id }, label), hint, field);

// A few choices as one labelled drop-down.
export const dropdown = (label, options, chosen, changed, hint = null) => {
  const select = el(
    "select",
    { id: newId("select"), onchange: () => changed(select.value) },
    Object.entries(options).map(([value, name]) => el("option", { value, selected: value === chosen }, name)),
  );
  return labelledField(label, select, hint);
};
