// @ts-check
// The line above the views that names the selection and clears it.
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { common } from "../strings/common.js";
/** @import { Selection } from "../core/selection.js" */

// One line above the views: what is selected, and how to let go of it.
export class SelectionBar {
  /** @param {() => unknown} cleared */
  constructor(cleared) {
    this.label = el("span", { class: "fx-selected-label" });
    this.button = buttonOf(common.selection.clear, cleared);
    this.node = el(
      "div",
      { class: "fx-selected", role: "status", "data-testid": "fx-selection" },
      this.label,
      this.button,
    );
    this.update(null);
  }

  /**
   * The bar keeps its height, so that choosing a token never moves the token.
   * @param {Selection | null} selection
   */
  update(selection) {
    this.node.classList.toggle("fx-selected-none", selection === null);
    this.button.style.visibility = selection === null ? "hidden" : "";
    if (selection === null)
      this.label.replaceChildren(
        common.selection.none,
        el("span", { class: "fx-selected-help" }, common.selection.help),
      );
    else this.label.textContent = common.selection.bar(selection.origin.label, format.count(selection.size));
  }
}
