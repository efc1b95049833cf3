// @ts-check
// Answers about a run that several views share: each is requested once.
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "./run.js" */
/** @import { Answer, Answers } from "./types.js" */

/** @type {WeakMap<Run, Map<keyof Answers, Promise<Answer<Answers[keyof Answers]>>>>} */
const answers = new WeakMap();

/**
 * One question about the open run, requested once however many views need the answer; a failure is requested again.
 * @template {keyof Answers} K
 * @param {App} app
 * @param {K} what
 * @returns {Promise<Answer<Answers[K]>>}
 */
export async function requestOnce(app, what) {
  const { run } = app;
  const runAnswers = answers.get(run) ?? new Map();
  answers.set(run, runAnswers);
  if (!runAnswers.has(what)) runAnswers.set(what, app.request(what));
  const answer = /** @type {Answer<Answers[K]>} */ (await runAnswers.get(what));
  if (answer.error !== undefined) runAnswers.delete(what);
  return answer;
}

/**
 * Drops an answer that is out of date.
 * @param {Run} run
 * @param {keyof Answers} what
 */
export function forgetAnswer(run, what) {
  answers.get(run)?.delete(what);
}
