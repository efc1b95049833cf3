// @ts-check
// The button of the header that opens the export dialog for the open run.
import { openExport } from "./export.js";
import { buttonOf } from "../core/dom.js";
import { exporting as text } from "../strings/export.js";
/** @import { App } from "./app.js" */

/** @param {App} app */
export const exportButton = (app) => {
  const { run } = app;
  const open = () =>
    openExport({
      request: (what, details = {}) => app.request(what, details),
      run: run.info.run_id,
      layer: run.layerIds[app.layerIndex],
    });
  return buttonOf(text.open, open, {
    class: "fx-button fx-export-open",
    "data-testid": "fx-export-open",
    "aria-haspopup": "dialog",
  });
};
