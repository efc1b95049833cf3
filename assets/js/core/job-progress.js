// @ts-check
// The state of a job on the server: its progress bar with a Stop button.
import { buttonOf, el } from "./dom.js";

const LIVE = ["waiting", "running", "stopping"];

/**
 * @template {{ state: string }} T
 * @param {T | null} job
 * @returns {job is T}
 */
export const isLive = (job) => job !== null && LIVE.includes(job.state);

/** A stage in words, a bar and a Stop button, drawn into `place` while a job runs. */
export class JobProgress {
  /**
   * @param {HTMLElement} place
   * @param {{ label: string, stop: string, role?: string }} words
   * @param {() => unknown} stop
   */
  constructor(place, words, stop) {
    this.place = place;
    this.stage = el("p", {});
    this.bar = el("progress", { max: "1", "aria-label": words.label });
    this.node = el("div", { class: "fx-invite", role: words.role }, this.stage, this.bar, buttonOf(words.stop, stop));
  }

  /**
   * @param {string} stage
   * @param {number} fraction
   */
  show(stage, fraction) {
    if (this.node.parentNode !== this.place) this.place.replaceChildren(this.node);
    this.stage.textContent = stage;
    this.bar.value = fraction;
  }
}
