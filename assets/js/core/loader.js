// @ts-check
// Loads one answer per layer: debounced, cached, and without late answers.
import { callServer } from "./server.js";
/** @import { Answer } from "./types.js" */

const KEPT_ANSWERS = 8;
const PAUSE = 120; // ms without another request, as while the slider moves

/**
 * What a view does with the answers; `open` says whether it is still on the screen.
 * @template T
 * @typedef {{
 *   open: () => boolean,
 *   waiting: () => unknown,
 *   ready: (answer: T) => unknown,
 *   failed: (message: string) => unknown,
 * }} LoaderHandlers
 */

/**
 * Requests each layer once.
 * @template T
 * @template {number | string} [L=number]
 */
export class LayerLoader {
  /** The newest request, whether answered or not. */
  requested = "";

  /**
   * @param {(runId: string, layerId: L, part: number) => Promise<Answer<T>>} load
   * @param {LoaderHandlers<T>} handlers
   */
  constructor(load, handlers) {
    this.load = load;
    this.handlers = handlers;
    /** @type {Map<string, T>} */
    this.cache = new Map();
    this.timer = 0;
  }

  /**
   * @param {string} runId
   * @param {L} layerId
   * @param {number} [part] of the layer's heads
   */
  request(runId, layerId, part = 0) {
    const key = JSON.stringify([runId, layerId, part]);
    this.requested = key;
    clearTimeout(this.timer);
    const cached = this.cache.get(key);
    if (cached !== undefined) {
      this.handlers.ready(cached);
      return;
    }
    this.handlers.waiting();
    this.timer = setTimeout(() => this.fetch(key, runId, layerId, part), PAUSE);
  }

  /**
   * @param {string} key
   * @param {string} runId
   * @param {L} layerId
   * @param {number} part
   */
  async fetch(key, runId, layerId, part) {
    const answer = await callServer(() => this.load(runId, layerId, part));
    if (answer.error === undefined) this.remember(key, answer);
    // A chart must not be drawn into a view that is closed by now; it asks again when it opens.
    if (this.requested !== key || !this.handlers.open()) return;
    if (answer.error !== undefined) this.handlers.failed(answer.error);
    else this.handlers.ready(answer);
  }

  /**
   * @param {string} key
   * @param {T} answer
   */
  remember(key, answer) {
    this.cache.set(key, answer);
    const [oldest] = this.cache.keys();
    if (this.cache.size > KEPT_ANSWERS) this.cache.delete(oldest);
  }
}
