// @ts-check
// A run: decodes the run payload into typed arrays with named accessors, and loads the cells of further layers.
import { mean, range } from "./arrays.js";
import { decodeBase64, expectLength } from "./bytes.js";
import { isContinued, shownPieces, textOf } from "./characters.js";
import { visibleToken } from "./labels.js";
import { LayerCells } from "./layer-cells.js";
/** @import { LayerCellsPayload, RunPayload, TimingPayload } from "./payloads.js" */
/** @import { Answers, RequestAnswer } from "./types.js" */

/**
 * Nothing comes before the first token, so it has no loss.
 * @param {string} text
 * @param {number} numTokens
 * @returns {(number | null)[]}
 */
function decodeLosses(text, numTokens) {
  const values = expectLength("losses", new Float32Array(decodeBase64(text).buffer), numTokens - 1);
  return [null, ...values];
}

const CELL_BYTES = 96 * 2 ** 20; // of layers kept at a time, beyond those that came with the run

const NEIGHBOURS = [1, -1, 2, -2]; // loaded ahead of the layer on screen, nearest first

// `request` loads what did not come with the run: a promise of an answer, or of {error}.
export class Run {
  /** @type {number} */
  centre;
  /** @type {Float32Array<ArrayBuffer>} */
  trajectoryConsistencies;

  /**
   * @param {RunPayload} payload
   * @param {RequestAnswer} request
   */
  constructor(payload, request) {
    this.info = payload.run;
    this.config = payload.run.config;
    this.pieces = payload.pieces;
    /** Of each token what a reader sees, also of characters that several tokens share. */
    this.shown = shownPieces(payload.pieces);
    this.layerIds = payload.layer_ids;
    this.layers = payload.layers;
    this.fullLayers = payload.full_layers;
    this.groups = payload.groups;
    this.quality = payload.quality;
    this.timings = payload.timings || [];
    /** Domains or texts that its centroids were trained on, where that is known. @type {string[]} */
    this.trainedOn = [];
    /** Whether its passes are still being timed. */
    this.isTiming = false;
    this.numTokens = payload.pieces.length;
    this.numLayers = payload.num_layers;
    this.numGroups = payload.run.config.num_groups;
    this.request = request;
    this.tops = expectLength("top", decodeBase64(payload.top), this.numLayers * this.numTokens);
    this.losses = {
      full: decodeLosses(payload.losses.full, this.numTokens),
      focus: decodeLosses(payload.losses.focus, this.numTokens),
    };
    this.cells = this.layerIds.map((id) => (payload.cells[id] ? this.decode(payload.cells[id]) : null));
    /** @type {number[]} */
    this.loadedLayers = []; // layers loaded later, the one used longest ago first
    /** @type {Map<number, Promise<void>>} */
    this.waiting = new Map();
    /** @type {Map<keyof Answers, Promise<Answers[keyof Answers]>>} */
    this.answers = new Map();
  }

  /** @param {LayerCellsPayload} payload */
  decode(payload) {
    return new LayerCells(payload, this.numTokens, this.numGroups);
  }

  /**
   * @param {number} layerIndex
   * @param {number} pos
   */
  top(layerIndex, pos) {
    return this.tops[layerIndex * this.numTokens + pos];
  }

  /**
   * Whether membership, probabilities and entropy of a layer are here; `whenLayer` gets them.
   * @param {number} layerIndex
   */
  hasLayer(layerIndex) {
    return this.cells[layerIndex] !== null;
  }

  /**
   * Fulfilled when the layer is here; rejected with a readable message when it cannot be had.
   * @param {number} layerIndex
   * @returns {Promise<void>}
   */
  whenLayer(layerIndex) {
    if (this.hasLayer(layerIndex)) {
      this.markUsed(layerIndex);
      return Promise.resolve();
    }
    let request = this.waiting.get(layerIndex);
    if (request === undefined) {
      request = this.load(layerIndex).finally(() => this.waiting.delete(layerIndex));
      this.waiting.set(layerIndex, request);
    }
    return request;
  }

  /** @param {number} layerIndex */
  async load(layerIndex) {
    const answer = await this.request("layer_cells", { layer: this.layerIds[layerIndex] });
    if (answer.error !== undefined) throw new Error(answer.error);
    this.cells[layerIndex] = this.decode(answer);
    this.loadedLayers.push(layerIndex);
    this.markUsed(layerIndex);
  }

  /**
   * The layer just used goes last; those used longest ago make room, but never the newest or the one on screen.
   * @param {number} layerIndex
   */
  markUsed(layerIndex) {
    if (!this.loadedLayers.includes(layerIndex)) return;
    this.loadedLayers = [...this.loadedLayers.filter((other) => other !== layerIndex), layerIndex];
    let bytes = this.loadedLayers.reduce((sum, other) => sum + /** @type {LayerCells} */ (this.cells[other]).bytes, 0);
    for (const oldest of this.loadedLayers.slice(0, -1)) {
      if (bytes <= CELL_BYTES) break;
      if (oldest === this.centre) continue;
      this.loadedLayers = this.loadedLayers.filter((other) => other !== oldest);
      bytes -= /** @type {LayerCells} */ (this.cells[oldest]).bytes;
      this.cells[oldest] = null;
    }
  }

  /**
   * One after the other, so that the layer somebody opens next never waits behind many; errors show when it is opened.
   * @param {number} layerIndex
   */
  async prefetchAround(layerIndex) {
    this.centre = layerIndex;
    for (const step of NEIGHBOURS) {
      const next = layerIndex + step;
      if (next < 0 || next >= this.numLayers || this.hasLayer(next)) continue;
      if (this.centre !== layerIndex) return;
      await this.whenLayer(next).catch(() => {});
    }
  }

  /**
   * An answer about the whole run that is requested once, such as the kinds of words.
   * @template {keyof Answers} K
   * @param {K} what
   * @returns {Promise<Answers[K]>}
   */
  requestOnce(what) {
    let request = /** @type {Promise<Answers[K]> | undefined} */ (this.answers.get(what));
    if (request === undefined) {
      request = this.request(what).then((answer) => {
        if (answer.error === undefined) return answer;
        this.answers.delete(what);
        throw new Error(answer.error);
      });
      this.answers.set(what, request);
    }
    return request;
  }

  /**
   * Of a layer that is not here only the top group is known. Without a part, under the run's own top-k.
   * @param {number} layerIndex
   * @param {number} pos
   * @param {number} group
   * @param {number} [part] of the layer's heads
   */
  belongs(layerIndex, pos, group, part = -1) {
    const cells = this.cells[layerIndex];
    return cells === null ? this.top(layerIndex, pos) === group : cells.belongs(pos, group, part);
  }

  /**
   * Whether two tokens share a group for some heads of a layer; under full attention all do. The layer must be here.
   * @param {number} layerIndex
   * @param {number} pos
   * @param {number} other
   * @param {number} part of the layer's heads
   */
  shareGroup(layerIndex, pos, other, part) {
    if (this.layers[layerIndex].parts[part].full) return true;
    return /** @type {LayerCells} */ (this.cells[layerIndex]).shareGroup(pos, other, part);
  }

  /**
   * The groups of a token for some heads of a layer, its most probable one first; none where these have full attention.
   * @param {number} layerIndex
   * @param {number} pos
   * @param {number} part of the layer's heads
   * @returns {number[]}
   */
  groupsOf(layerIndex, pos, part) {
    const { full, top_k: topK } = this.layers[layerIndex].parts[part];
    if (full || (topK === 0 && !this.hasLayer(layerIndex))) return [];
    const top = this.top(layerIndex, pos);
    const others = range(this.numGroups).filter((group) => group !== top);
    return [top, ...others].filter((group) => this.belongs(layerIndex, pos, group, part));
  }

  /**
   * These three are null while the layer is not here.
   * @param {number} layerIndex
   * @param {number} pos
   * @param {number} group
   * @returns {number | null}
   */
  probability(layerIndex, pos, group) {
    const cells = this.cells[layerIndex];
    return cells === null ? null : cells.probabilities[pos * this.numGroups + group] / 255;
  }

  /**
   * @param {number} layerIndex
   * @param {number} pos
   * @returns {number | null}
   */
  confidence(layerIndex, pos) {
    return this.probability(layerIndex, pos, this.top(layerIndex, pos));
  }

  /**
   * In nats, at most the logarithm of the number of groups.
   * @param {number} layerIndex
   * @param {number} pos
   * @returns {number | null}
   */
  entropy(layerIndex, pos) {
    const cells = this.cells[layerIndex];
    return cells === null ? null : (cells.entropies[pos] / 255) * Math.log(this.numGroups);
  }

  // How far each token keeps company with its group: for every step to the next layer the share of its group that goes
  // where it goes, averaged. Letters of two layers have nothing in common, so no letter is compared.
  trajectoryConsistency() {
    if (this.trajectoryConsistencies) return this.trajectoryConsistencies;
    const { numTokens, numGroups, tops } = this;
    const sums = new Float32Array(numTokens);
    for (let layer = 0; layer + 1 < this.numLayers; layer += 1) {
      const here = layer * numTokens;
      const next = here + numTokens;
      const sizes = new Uint32Array(numGroups);
      const moves = new Uint32Array(numGroups * numGroups);
      for (let pos = 0; pos < numTokens; pos += 1) {
        sizes[tops[here + pos]] += 1;
        moves[tops[here + pos] * numGroups + tops[next + pos]] += 1;
      }
      for (let pos = 0; pos < numTokens; pos += 1) {
        const group = tops[here + pos];
        sums[pos] += moves[group * numGroups + tops[next + pos]] / sizes[group];
      }
    }
    const steps = Math.max(1, this.numLayers - 1);
    this.trajectoryConsistencies = sums.map((sum) => sum / steps);
    return this.trajectoryConsistencies;
  }

  /**
   * @param {number} pos
   * @returns {number | null}
   */
  lossDifference(pos) {
    const full = this.losses.full[pos];
    const focus = this.losses.focus[pos];
    return full === null || focus === null ? null : focus - full;
  }

  /**
   * @param {number} pos
   * @param {number} reach
   */
  context(pos, reach) {
    return {
      before: this.text(Math.max(0, pos - reach), pos),
      token: this.shown[pos],
      after: this.text(pos + 1, Math.min(this.numTokens, pos + 1 + reach)),
    };
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  text(from, to) {
    return textOf(this.pieces, this.shown, from, to);
  }

  /**
   * A token by name: its text with spaces and line ends marked; of part of a character, that and the bytes.
   * @param {number} pos
   */
  tokenLabel(pos) {
    const piece = this.pieces[pos];
    if (this.shown[pos] === piece) return visibleToken(piece);
    let start = pos;
    while (start > 0 && isContinued(this.pieces, this.shown, start)) start -= 1;
    return `${this.shown[start]} ${piece}`;
  }

  /**
   * @param {string} mode
   * @param {string} stage
   * @returns {TimingPayload | null}
   */
  timing(mode, stage) {
    return this.timings.find((timing) => timing.mode === mode && timing.stage === stage) || null;
  }

  /**
   * @param {string} stage
   * @returns {number | null}
   */
  timeRatio(stage) {
    const full = this.timing("full", stage);
    const focus = this.timing("focus", stage);
    return full && focus && full.median > 0 ? focus.median / full.median : null;
  }

  meanKept() {
    return mean(this.layers.map((layer) => layer.retained_pairs));
  }

  /** Whether pairs of this text lie beyond a layer's own sliding window: they count as dropped. */
  get slides() {
    return this.layers.some(({ sliding_window: sliding }) => sliding !== null && sliding < this.numTokens);
  }

  /** Whether the model is known to have layers that Focus does not run in. */
  get hasOtherLayers() {
    return Array.isArray(this.config.layers) || this.layerIds[this.numLayers - 1] >= this.numLayers;
  }

  meanDominance() {
    return mean(this.layers.map((layer) => layer.dominance));
  }
}
