// @ts-check
// The choice of the layers that the flow shows: neighbours, spread over the model, or chosen one by one.
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { choiceOf } from "../core/widgets.js";
import { groups as groupsText } from "../strings/groups.js";
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

/** @typedef {"near" | "spread" | "chosen"} Preset */

const text = groupsText.flow;

export const MOST_LAYERS = 5;

const NEAR = 3;

export class FlowLayers {
  /** The run that the buttons belong to. @type {Run | null} */
  run = null;
  /** @type {Preset} */
  preset = "near";
  /** The layers of the preset `chosen`. @type {number[]} */
  chosen = [];
  /** The layers that are shown. @type {number[]} */
  layers = [];
  /** @type {HTMLButtonElement[]} */
  buttons = [];

  /**
   * @param {App} app
   * @param {() => unknown} changed
   */
  constructor(app, changed) {
    this.app = app;
    this.changed = changed;
    this.presets = el("div");
    this.toggles = el("div", { class: "fx-layer-toggles", role: "group", "aria-label": text.layers });
    this.node = el("div", { class: "fx-flow-layers" }, this.presets, this.toggles);
    this.drawPresets();
  }

  drawPresets() {
    /** @param {string} value */
    const changed = (value) => {
      this.preset = /** @type {Preset} */ (value);
      if (value === "chosen") this.chosen = this.layers;
      this.changed();
    };
    this.presets.replaceChildren(choiceOf(text.layers, text.presets, this.preset, changed));
  }

  /** Draws the buttons for the open layer and returns the layers to show, in order. */
  update() {
    const { run, layerIndex } = this.app;
    if (this.run !== run) this.openRun(run);
    this.layers = [...new Set(this.presetLayers())].sort((a, b) => a - b);
    const full = this.preset === "chosen" && this.layers.length >= MOST_LAYERS;
    this.buttons.forEach((button, index) => {
      const shown = this.layers.includes(index);
      button.setAttribute("aria-pressed", String(shown));
      button.disabled = index === layerIndex || (!shown && full);
    });
    return this.layers;
  }

  /** @param {Run} run */
  openRun(run) {
    this.run = run;
    this.chosen = [];
    if (this.preset === "chosen") this.preset = "near";
    this.drawPresets();
    this.buttons = run.layerIds.map((layer, index) =>
      buttonOf(layer, () => this.toggle(index), { class: "fx-layer-toggle", "aria-label": text.toggle(layer) }),
    );
    this.toggles.replaceChildren(...this.buttons);
  }

  /** @param {number[]} layers */
  setLayers(layers) {
    this.preset = "chosen";
    this.chosen = layers;
    this.drawPresets();
  }

  /** @param {number} index */
  toggle(index) {
    const remaining = this.layers.filter((other) => other !== index);
    const before = this.preset === "chosen" ? this.layers : [];
    this.chosen = this.layers.includes(index) ? remaining : [...before, index];
    if (this.preset !== "chosen") this.setLayers(this.chosen);
    this.changed();
  }

  /** @returns {number[]} */
  presetLayers() {
    const { run, layerIndex } = this.app;
    const last = run.numLayers - 1;
    if (this.preset === "near") {
      const first = Math.max(0, Math.min(layerIndex - 1, last - NEAR + 1));
      return range(Math.min(NEAR, last + 1)).map((i) => first + i);
    }
    if (this.preset === "chosen") {
      const others = this.chosen.filter((layer) => layer !== layerIndex);
      return [layerIndex, ...others.slice(0, MOST_LAYERS - 1)];
    }
    const even = range(MOST_LAYERS).map((i) => Math.round((i * last) / (MOST_LAYERS - 1)));
    const nearest = even.reduce((best, layer) =>
      Math.abs(layer - layerIndex) < Math.abs(best - layerIndex) ? layer : best,
    );
    return even.map((layer) => (layer === nearest ? layerIndex : layer));
  }
}
