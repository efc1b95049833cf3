// @ts-check
// Requests for statistics that the server computes in the background.
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { progressBox } from "../core/widgets.js";
import { statistics as text } from "../strings/statistics.js";
/** @import { ComputingPayload } from "../core/payloads.js" */
/** @import { Answer, Answers, Details } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */

const PAUSE = 200; // ms between two questions; the server itself waits before it answers

/**
 * Asks until the answer is there; `onProgress` gets the share done. Nothing once the run changed or the view closed.
 * @template {keyof Answers} K
 * @param {App} app
 * @param {K} what
 * @param {Details} details
 * @param {(fraction: number) => unknown} onProgress
 * @returns {Promise<Answer<Exclude<Answers[K], ComputingPayload>> | null>}
 */
export const requestComputed = async (app, what, details, onProgress) => {
  const { run } = app;
  for (;;) {
    const answer = await app.request(what, details);
    if (app.run !== run || !app.isOpen("statistics")) return null;
    const state = /** @type {ComputingPayload | { state: "done" }} */ (answer);
    if (state.state !== "computing") return /** @type {Answer<Exclude<Answers[K], ComputingPayload>>} */ (answer);
    onProgress(state.fraction);
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
};

/** @param {string} words */
export const computingProgress = (words) => {
  const share = el("p", { class: "fx-muted fx-stat-share" });
  const node = el("div", {}, progressBox(words), share);
  /** @param {number} fraction */
  const onProgress = (fraction) =>
    (share.textContent = fraction > 0 && fraction < 1 ? text.progress(format.percent(fraction)) : "");
  return { node, onProgress };
};
