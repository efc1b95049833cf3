// @ts-check
// The slider and buttons that choose the layer.
import { buttonOf, el, newId } from "../core/dom.js";
import { format } from "../core/format.js";
import { shell as text } from "../strings/shell.js";
/** @import { Run } from "../core/run.js" */

export class LayerControl {
  /** @type {HTMLInputElement} */
  range;

  /** @param {(index: number) => unknown} changed */
  constructor(changed) {
    this.changed = changed;
    const id = newId("layer");
    this.range = el("input", {
      id,
      type: "range",
      class: "fx-range",
      min: 0,
      step: 1,
      "data-testid": "fx-layer",
      oninput: () => changed(Number(this.range.value)),
    });
    this.previous = this.stepButton("‹", text.layer.previous, -1);
    this.next = this.stepButton("›", text.layer.next, 1);
    this.number = el("output", { class: "fx-layer-number", for: id });
    this.position = el("span", { class: "fx-layer-position" });
    this.summary = el("p", { class: "fx-layer-summary" });
    this.node = el(
      "div",
      { class: "fx-layer" },
      el(
        "div",
        { class: "fx-layer-row" },
        el("label", { for: id, class: "fx-layer-label" }, text.layer.label),
        this.number,
        this.previous,
        this.range,
        this.next,
        this.position,
      ),
      this.summary,
    );
  }

  /**
   * @param {string} symbol
   * @param {string} label
   * @param {number} step
   */
  stepButton(symbol, label, step) {
    return buttonOf(symbol, () => this.changed(Number(this.range.value) + step), {
      class: "fx-step",
      "aria-label": label,
    });
  }

  /**
   * @param {Run} run
   * @param {number} index
   */
  update(run, index) {
    const layer = run.layers[index];
    const id = run.layerIds[index];
    this.range.max = String(run.numLayers - 1);
    this.range.value = String(index);
    this.range.setAttribute("aria-valuetext", text.layer.valueText(id, index + 1, run.numLayers));
    this.previous.disabled = index === 0;
    this.next.disabled = index === run.numLayers - 1;
    this.number.textContent = String(id);
    this.position.textContent = text.layer.position(run.layerIds[0], run.layerIds[run.numLayers - 1]);
    this.summary.textContent = text.layer.summary(
      layer.attention_kind,
      format.percent(layer.retained_pairs),
      format.percent(layer.dominance),
    );
  }
}
