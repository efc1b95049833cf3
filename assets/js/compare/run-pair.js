// @ts-check
// Two runs of the same tokens as data: matched groups, tokens that changed group, loss differences.
import { range } from "../core/arrays.js";
import { decodeBase64 } from "../core/bytes.js";
import { groupLabel } from "../core/labels.js";
import { runs as text } from "../strings/compare.js";
/** @import { App } from "../shell/app.js" */
/** @import { MatchedRunsPayload } from "../core/payloads.js" */

export const UNMATCHED = 255;

/** The open run and another one, in the open layer. */
export class RunPair {
  /**
   * @param {App} app
   * @param {MatchedRunsPayload} answer
   */
  constructor(app, answer) {
    this.app = app;
    this.run = app.run;
    this.answer = answer;
    this.tops = decodeBase64(answer.top);
    const own = this.run.losses.focus;
    this.differences = answer.losses.map((value, pos) => {
      const loss = own[pos];
      return value === null || loss === null ? null : value - loss;
    });
  }

  // Layers both runs have, in this run's order; -1 where the other run has no router.
  get otherIndex() {
    return this.answer.layers.findIndex((layer) => layer.layer === this.run.layerIds[this.app.layerIndex]);
  }

  /** @param {number} pos */
  ownTop(pos) {
    return this.run.top(this.app.layerIndex, pos);
  }

  /** @param {number} pos */
  otherTop(pos) {
    return this.tops[this.otherIndex * this.run.numTokens + pos];
  }

  /** @param {number} pos */
  changed(pos) {
    return this.otherTop(pos) !== this.ownTop(pos);
  }

  changedPositions() {
    return this.otherIndex < 0 ? [] : range(this.run.numTokens).filter((pos) => this.changed(pos));
  }

  /** @param {number} pos */
  otherName(pos) {
    if (this.otherIndex < 0) return text.noGroup;
    const other = this.otherTop(pos);
    return other === UNMATCHED ? text.unmatched : groupLabel(other);
  }
}
