// @ts-check
// What can be done with one centroid file: use it, look inside, and rename or remove an uploaded one.
import { buttonOf, el } from "../core/dom.js";
import { sentence } from "../core/format.js";
import { callServer } from "../core/server.js";
import { alertBox } from "../core/widgets.js";
import { centroids as text } from "../strings/centroids.js";
/** @import { CentroidCardPayload, CentroidCardsPayload } from "../core/payloads.js" */
/** @import { Answer, Attributes } from "../core/types.js" */
/** @import { App } from "./app.js" */

/**
 * @param {App} app
 * @param {CentroidCardPayload} file
 */
export function fileActions(app, file) {
  const node = el("div", { class: "fx-file-actions" });
  const isChangeable = file.added !== null && !app.fixed;
  /** @param {(Node | null)[]} nodes */
  const show = (...nodes) => node.replaceChildren(...nodes.filter((one) => one !== null));
  /** @param {string} label @param {() => unknown} act @param {string} what @param {Attributes} [more] */
  const button = (label, act, what, more) =>
    buttonOf(label, act, { "aria-label": `${label}: ${file.name}`, "data-testid": `fx-file-${what}`, ...more });

  /** @param {() => Promise<Answer<CentroidCardsPayload>>} work */
  const change = async (work) => {
    const answer = await callServer(work);
    if (answer.error === undefined) app.changed(answer.files);
    else show(alertBox(sentence(answer.error)), buttonOf(text.back, () => usual()));
  };
  const ask = () => {
    const cancel = button(text.keep, () => usual("remove"), "keep");
    show(
      el("p", { class: "fx-file-question" }, text.removeQuestion(file.runs)),
      button(text.removeSure, () => change(() => app.server.remove({ file: file.sha256 })), "remove-sure"),
      cancel,
    );
    cancel.focus();
  };
  const rename = () => {
    const input = el("input", { class: "fx-input", type: "text", value: file.name, maxlength: 120 });
    input.setAttribute("aria-label", text.newName(file.name));
    /** @param {Event} event */
    const onsubmit = (event) => {
      event.preventDefault();
      change(() => app.server.rename({ file: file.sha256, name: input.value }));
    };
    const save = el("button", { type: "submit", class: "fx-button fx-primary" }, text.save);
    const leave = () => usual("rename");
    const form = el("form", { class: "fx-file-rename", onsubmit }, input, save, buttonOf(text.cancel, leave));
    form.addEventListener("keydown", (event) => event.key === "Escape" && leave());
    show(form);
    input.select();
  };
  /** @param {string} [focused] the button that began what is called off */
  function usual(focused) {
    show(
      file.problem ? null : button(text.use, () => app.use(file), "use", { class: "fx-button fx-primary" }),
      file.problem ? null : button(text.inspect, () => app.inspect(file), "inspect"),
      isChangeable ? button(text.rename, rename, "rename") : null,
      isChangeable ? button(text.remove, ask, "remove") : null,
    );
    if (focused) node.querySelector(`[data-testid=fx-file-${focused}]`)?.focus();
  }
  usual();
  return node;
}
