// @ts-check
// Loads one answer per layer: debounced, cached, and without late answers.
import { callServer } from "./server.js";

const KEPT_ANSWERS = 8;

// Asks the server once per layer, waits while the slider still moves, and ignores answers that come too late.
export class LayerLoader {
  constructor(load, handlers) {
    this.load = load;
    this.handlers = handlers;
    this.cache = new Map();
  }

  request(runId, layerId) {
    const key = JSON.stringify([runId, layerId]);
    this.wanted = key;
    clearTimeout(this.timer);
    if (this.cache.has(key)) {
      this.handlers.ready(this.cache.get(key));
      return;
    }
    this.handlers.waiting();
    this.timer = setTimeout(() => this.fetch(key, runId, layerId), 120);
  }

  async fetch(key, runId, layerId) {
    const answer = await callServer(() => this.load(runId, layerId));
    if (answer.error === undefined) this.remember(key, answer);
    // A chart must not be drawn into a view that is closed by now; it asks again when it opens.
    if (this.wanted !== key || !this.handlers.open()) return;
    if (answer.error !== undefined) this.handlers.failed(answer.error);
    else this.handlers.ready(answer);
  }

  remember(key, answer) {
    this.cache.set(key, answer);
    if (this.cache.size > KEPT_ANSWERS) this.cache.delete(this.cache.keys().next().value);
  }
}
