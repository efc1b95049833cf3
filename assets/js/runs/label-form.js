// @ts-check
// The form for the name, note and tags of a stored run.
import { buttonOf, el } from "../core/dom.js";
import { runs as text } from "../strings/runs.js";
/** @import { RunCardPayload } from "../core/payloads.js" */

/** What a person says about a run. @typedef {{ name: string, note: string, tags: string[] }} RunLabels */

/** @param {string} value */
const splitTags = (value) =>
  value
    .split(",")
    .map((tag) => tag.trim())
    .filter(Boolean);

/**
 * @param {RunCardPayload} run
 * @param {(labels: RunLabels) => unknown} save
 * @param {() => unknown} cancel
 */
export function labelForm(run, save, cancel) {
  const name = el("input", {
    type: "text",
    class: "fx-input",
    value: run.name,
    maxlength: 120,
    placeholder: run.title,
  });
  const tags = el("input", { type: "text", class: "fx-input", value: run.tags.join(", ") });
  const note = el("textarea", { class: "fx-input", rows: 3, maxlength: 4000 });
  note.value = run.note;
  /** @param {string} label @param {HTMLElement} input @param {boolean} wide */
  const field = (label, input, wide) =>
    el("label", { class: `fx-entry ${wide ? "fx-entry-wide" : ""}`.trim() }, el("span", {}, label), input);
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    save({ name: name.value, note: note.value, tags: splitTags(tags.value) });
  };
  return el(
    "form",
    {
      class: "fx-runs-form",
      onsubmit: submit,
      onkeydown: (event) => event.key === "Escape" && cancel(),
    },
    field(text.name, name, true),
    field(text.tags, tags, true),
    field(text.note, note, true),
    el(
      "div",
      { class: "fx-runs-actions" },
      el("button", { type: "submit", class: "fx-button fx-primary" }, text.save),
      buttonOf(text.cancel, cancel),
    ),
  );
}
