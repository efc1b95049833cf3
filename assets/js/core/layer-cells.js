// @ts-check
// What one layer knows of each token beyond its top group: its groups, their probabilities, the entropy.
import { decodeBase64, expectLength } from "./bytes.js";
/** @import { LayerCellsPayload } from "./payloads.js" */

/**
 * By the bytes of a set.
 * @type {Record<number, Uint8ArrayConstructor | Uint16ArrayConstructor | Uint32ArrayConstructor>}
 */
const WORDS = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: Uint32Array };

export class LayerCells {
  /**
   * @param {LayerCellsPayload} payload
   * @param {number} numTokens
   * @param {number} numGroups
   */
  constructor(payload, numTokens, numGroups) {
    // Bit sets of up to 64 groups are pairs of 32-bit words: bit tests on them are far quicker than on BigInt.
    this.words = payload.width === 8 ? 2 : 1;
    this.members = expectLength(
      "membership",
      new WORDS[payload.width](decodeBase64(payload.membership).buffer),
      numTokens * this.words,
    );
    this.probabilities = expectLength("probabilities", decodeBase64(payload.probabilities), numTokens * numGroups);
    this.entropies = expectLength("entropy", decodeBase64(payload.entropy), numTokens);
    this.numGroups = numGroups;
    /** Of the parts of the layer's heads with other groups. @type {Map<number, LayerCells["members"]>} */
    this.partMembers = new Map();
    for (const [part, bits] of Object.entries(payload.part_memberships ?? {})) {
      const words = new WORDS[payload.width](decodeBase64(bits).buffer);
      this.partMembers.set(Number(part), expectLength("membership", words, numTokens * this.words));
    }
    this.bytes =
      this.members.byteLength * (1 + this.partMembers.size) + this.probabilities.byteLength + this.entropies.byteLength;
  }

  /** @param {number} part */
  membersOf(part) {
    return this.partMembers.get(part) ?? this.members;
  }

  /**
   * @param {number} pos
   * @param {number} group
   * @param {number} part
   */
  belongs(pos, group, part) {
    return ((this.membersOf(part)[pos * this.words + (group >> 5)] >>> (group & 31)) & 1) === 1;
  }

  /**
   * @param {number} pos
   * @param {number} other
   * @param {number} part
   */
  shareGroup(pos, other, part) {
    const { words } = this;
    const members = this.membersOf(part);
    if ((members[pos * words] & members[other * words]) !== 0) return true;
    return words === 2 && (members[pos * 2 + 1] & members[other * 2 + 1]) !== 0;
  }
}
