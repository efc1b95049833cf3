// @ts-check
// The colour of each token, and the key that explains the colours.
import { extent } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { confidenceShade, confidenceShades, lossShade, lossShades, shareShade } from "../core/shades.js";
import { hintButton } from "../core/tooltip.js";
import { reading, tokens as text } from "../strings/tokens.js";
/** @import { Run } from "../core/run.js" */
/** @import { Tooltip } from "../core/tooltip.js" */

const DEFAULT = "group";
const NEEDS_LAYER = ["confidence", "entropy"];

export class TokenColours {
  /**
   * `name`: the colouring that the address holds; the default for any other value.
   * @param {Tooltip} tooltip
   * @param {string | null} name
   */
  constructor(tooltip, name) {
    this.tooltip = tooltip;
    this.name = name !== null && Object.hasOwn(reading.colourings, name) ? name : DEFAULT;
    this.key = el("div", { class: "fx-key" });
    /** @type {string | null} */
    this.drawnKey = null;
    this.low = 0;
    this.high = 1;
    /** The shade of a token and its group. @type {(pos: number, group: number) => string} */
    this.shade = () => "none";
  }

  /** For the address: null for the default. */
  get parameter() {
    return this.name === DEFAULT ? null : this.name;
  }

  /**
   * Computes what is the same for all tokens, and sets `shade`.
   * @param {Run} run
   * @param {number} layerIndex
   */
  prepare(run, layerIndex) {
    const consistency = this.name === "path" ? run.trajectoryConsistency() : new Float32Array();
    [this.low, this.high] = consistency.length === 0 ? [0, 1] : extent(consistency);
    const span = this.high - this.low || 1;
    const most = Math.log(run.numGroups) || 1;
    /** @type {Record<string, (pos: number, group: number) => string>} */
    const shades = {
      group: (_, group) => `g${group}`,
      confidence: (pos) => confidenceShade(run.confidence(layerIndex, pos), run.numGroups),
      entropy: (pos) => shareShade(/** @type {number} */ (run.entropy(layerIndex, pos)) / most),
      loss: (pos) => lossShade(run.lossDifference(pos)),
      path: (pos) => shareShade((consistency[pos] - this.low) / span),
    };
    const waits = NEEDS_LAYER.includes(this.name) && !run.hasLayer(layerIndex);
    this.shade = waits ? () => "none" : shades[this.name];
  }

  /** @param {Run} run */
  updateKey(run) {
    const key = `${run.info.run_id} ${this.name}`;
    if (this.drawnKey === key) return; // a hint just pressed must not lose the focus
    this.drawnKey = key;
    const hint = hintButton(this.tooltip, reading.colourings[this.name], reading.colouringHints[this.name]);
    this.key.replaceChildren(...this.keyParts(run), hint);
  }

  /** @param {Run} run */
  keyParts(run) {
    /** @type {Record<string, () => HTMLElement[]>} */
    const parts = {
      group: () => [el("span", {}, reading.groupKey)],
      confidence: () => scaleKey(text.confidenceKey(format.percent(1 / run.numGroups)), confidenceShades()),
      entropy: () => scaleKey(reading.entropyKey(format.decimal(Math.log(run.numGroups), 2)), confidenceShades()),
      loss: () => scaleKey(text.lossKey, lossShades()),
      path: () => scaleKey(reading.pathKey(format.percent(this.low), format.percent(this.high)), confidenceShades()),
    };
    return parts[this.name]();
  }
}

/**
 * @param {string[]} pair
 * @param {string[]} shades
 */
function scaleKey([low, high], shades) {
  return [
    el("span", {}, low),
    el(
      "span",
      { class: "fx-key-scale", "aria-hidden": "true" },
      shades.map((shade) => el("span", { class: "fx-swatch", "data-shade": shade })),
    ),
    el("span", {}, high),
  ];
}
