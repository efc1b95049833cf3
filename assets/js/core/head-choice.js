// @ts-check
// The choice of the heads a view shows, of a layer whose heads differ; empty for others.
import { el } from "./dom.js";
import { dropdown } from "./fields.js";
import { partTitle } from "./heads.js";
import { hintButton } from "./tooltip.js";
import { choiceOf } from "./widgets.js";
import { heads as text } from "../strings/heads.js";
/** @import { App } from "../shell/app.js" */

const BUTTONS = 3; // at most; more choices are a list

export class HeadChoice {
  shown = "";

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.node = el("div", { class: "fx-head-choice", "data-testid": "fx-heads", hidden: true });
  }

  // Kept while run and layer stay, so that the keyboard stays on it.
  update() {
    const { run, layerIndex, part, tooltip } = this.app;
    const { layer, parts } = run.layers[layerIndex];
    const key = JSON.stringify([run.info.run_id, layer, part]);
    this.node.hidden = parts.length === 1;
    if (key === this.shown) return;
    this.shown = key;
    const options = Object.fromEntries(parts.map((one, number) => [String(number), partTitle(one)]));
    const focused = this.node.contains(document.activeElement);
    /** @param {string} number */
    const chosen = (number) => this.app.setPart(Number(number));
    const field = (parts.length > BUTTONS ? dropdown : choiceOf)(text.choice, options, String(part), chosen);
    const hint = hintButton(tooltip, text.differ, text.choiceHint);
    this.node.replaceChildren(field, hint);
    field.querySelector(".fx-choice-label")?.after(hint); // else options that take a line of their own part the two
    for (const input of this.node.querySelectorAll("input")) input.dataset.key = `heads-${input.getAttribute("value")}`;
    const checked = /** @type {HTMLElement | null} */ (this.node.querySelector("input:checked, select"));
    if (focused) checked?.focus({ preventScroll: true });
  }
}
