// @ts-check
// The buttons of the header: the form for another text, a link to what is shown, the export dialog for the open run.
import { openExport } from "./export.js";
import { formButton } from "./form.js";
import { copyFrom } from "../core/clipboard.js";
import { buttonOf, el } from "../core/dom.js";
import { exporting as text } from "../strings/export.js";
import { shell } from "../strings/shell.js";
/** @import { App } from "./app.js" */

/** @param {App} app */
const exportButton = (app) => {
  const { run } = app;
  const open = () =>
    openExport({
      request: (what, details = {}) => app.request(what, details),
      run: run.info.run_id,
      layer: run.layerIds[app.layerIndex],
      head: app.head,
    });
  return buttonOf(text.open, open, {
    class: "fx-button fx-export-open",
    "data-testid": "fx-export-open",
    "aria-haspopup": "dialog",
  });
};

// Run, view, layer and selection are in the address.
const copyLinkButton = () => {
  const words = shell.header.link;
  const copy = () => copyFrom(button, window.location.href, words);
  const button = buttonOf(words.copy, copy, { class: "fx-button fx-copy-link", title: words.hint });
  return button;
};

/** @param {App} app */
export const headerActions = (app) =>
  el("div", { class: "fx-header-actions" }, formButton(), copyLinkButton(), exportButton(app));
