// @ts-check
// What one token attends to in a layer, decoded: for all heads together and for each, the strongest keys.
import { decodeBase64, expectLength } from "../core/bytes.js";
/** @import { LayerAttentionOfTokenPayload } from "../core/payloads.js" */

/** @typedef {{ key: number, full: number, focus: number, kept: number }} KeyAttention */

export class AttentionRows {
  /** @param {LayerAttentionOfTokenPayload} payload */
  constructor(payload) {
    this.rows = payload.rows;
    this.keys = new Int32Array(decodeBase64(payload.keys).buffer);
    this.count = this.keys.length / this.rows;
    const [full, focus, kept] = [payload.full, payload.focus, payload.kept].map((text) =>
      expectLength("attention", new Float32Array(decodeBase64(text).buffer), this.keys.length),
    );
    this.shares = { full, focus, kept };
    this.fullKept = expectLength("kept", new Float32Array(decodeBase64(payload.full_kept).buffer), this.rows);
  }

  get numHeads() {
    return this.rows - 1;
  }

  /**
   * Strongest first.
   * @param {number | null} head all of them together without one
   * @returns {KeyAttention[]}
   */
  of(head) {
    const row = head === null ? 0 : head + 1;
    /** @type {KeyAttention[]} */
    const found = [];
    for (let at = row * this.count; at < (row + 1) * this.count; at += 1) {
      const key = this.keys[at];
      if (key < 0) continue;
      found.push({ key, full: this.shares.full[at], focus: this.shares.focus[at], kept: this.shares.kept[at] });
    }
    return found;
  }

  /**
   * Full attention's probability on the pairs that Focus keeps.
   * @param {number | null} head
   */
  keptOf(head) {
    return this.fullKept[head === null ? 0 : head + 1];
  }
}
