// @ts-check
// The slider and buttons that choose the layer.
import { buttonOf, el, newId } from "../core/dom.js";
import { format } from "../core/format.js";
import { heads } from "../strings/heads.js";
import { shell as text } from "../strings/shell.js";
/** @import { Run } from "../core/run.js" */

export class LayerControl {
  /** @type {HTMLInputElement} */
  range;
  /** The run whose layers are marked. @type {Run | null} */
  marked = null;

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
    this.marks = el("div", { class: "fx-layer-marks", "aria-hidden": "true" });
    this.node = el(
      "div",
      { class: "fx-layer" },
      el(
        "div",
        { class: "fx-layer-row" },
        el("label", { for: id, class: "fx-layer-label" }, text.layer.label),
        this.number,
        this.previous,
        el("div", { class: "fx-layer-slider" }, this.range, this.marks),
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
    const differ = layer.parts.length > 1 ? heads.differ : "";
    this.range.setAttribute("aria-valuetext", text.layer.valueText(id, index + 1, run.numLayers, differ));
    this.previous.disabled = index === 0;
    this.next.disabled = index === run.numLayers - 1;
    this.number.textContent = String(id);
    this.position.textContent = text.layer.position(run.layerIds[0], run.layerIds[run.numLayers - 1]);
    this.summary.textContent = text.layer.summary(
      layer.attention_kind,
      format.percent(layer.retained_pairs),
      format.percent(layer.dominance),
      differ,
    );
    if (run !== this.marked) this.mark(run);
  }

  /**
   * Dots under layers whose heads differ, rings under those that attend fully by the budget.
   * @param {Run} run
   */
  mark(run) {
    this.marked = run;
    const last = Math.max(1, run.numLayers - 1);
    /** @param {number} place @param {string} kind @param {string} title */
    const dot = (place, kind, title) =>
      el("span", { class: `fx-layer-mark ${kind}`, style: `--fx-place:${place / last}`, title });
    const differing = run.layers.flatMap(({ layer, parts }, index) =>
      parts.length > 1 ? [dot(index, "fx-layer-mark-heads", heads.markOf(layer, heads.differ))] : [],
    );
    const full = run.fullLayers.map((id) =>
      dot(run.layerIds.indexOf(id), "fx-layer-mark-full", heads.markOf(id, heads.fullByBudget)),
    );
    this.marks.replaceChildren(...differing, ...full);
  }
}
