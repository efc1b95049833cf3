// @ts-check
// Which tokens one token may attend to in a layer, which may attend to it, and by which cause: the rule of the executed
// mask for one row and one column of it.
import { KEPT_CAUSES, near, pairCode } from "../core/pair-rule.js";
/** @import { Growth } from "../core/pair-rule.js" */
/** @import { Cause } from "../core/types.js" */

/**
 * What the links need of a run.
 * @typedef {{ numTokens: number, config: { num_sinks: number, window_growth?: Growth },
 *   layers: { sliding_window: number | null, parts: { window: number }[] }[],
 *   shareGroup: (layerIndex: number, pos: number, other: number, part: number) => boolean }} LinkedRun
 */

export class Links {
  /**
   * The layer's membership must be here.
   * @param {LinkedRun} run
   * @param {number} layerIndex
   * @param {number} pos
   * @param {number} part of the layer's heads
   */
  constructor(run, layerIndex, pos, part) {
    const { num_sinks: sinks, window_growth: growth } = run.config;
    const { sliding_window: sliding, parts } = run.layers[layerIndex];
    const { window } = parts[part];
    const reach = sliding ?? run.numTokens; // of the layer's own attention
    this.pos = pos;
    this.layerIndex = layerIndex;
    this.numTokens = run.numTokens;
    this.codes = new Uint8Array(run.numTokens); // 0: no attention either way; else 1 + place in KEPT_CAUSES
    for (let other = 0; other < run.numTokens; other += 1) {
      const distance = Math.abs(pos - other);
      if (distance >= reach) continue;
      const shared = run.shareGroup(layerIndex, pos, other, part);
      const reached = near(window, Math.max(pos, other), growth);
      this.codes[other] = pairCode(shared, distance <= reached, Math.min(pos, other) < sinks);
    }
  }

  /**
   * null, or the cause; the token itself counts among those it may attend to.
   * @param {number} other
   */
  cause(other) {
    return this.codes[other] === 0 ? null : KEPT_CAUSES[this.codes[other] - 1];
  }

  /** @param {Cause | null} [cause] */
  back(cause = null) {
    return this.collect(0, this.pos + 1, cause);
  }

  /** @param {Cause | null} [cause] */
  forward(cause = null) {
    return this.collect(this.pos + 1, this.numTokens, cause);
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {Cause | null} cause
   */
  collect(from, to, cause) {
    const code = cause === null ? 0 : KEPT_CAUSES.indexOf(cause) + 1;
    const positions = [];
    for (let other = from; other < to; other += 1) {
      if (this.codes[other] !== 0 && (code === 0 || this.codes[other] === code)) positions.push(other);
    }
    return positions;
  }
}
