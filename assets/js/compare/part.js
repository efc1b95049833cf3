// @ts-check
// The base of the parts of the Compare view that run background jobs: requests, progress line and Stop button.
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { isLive } from "../core/job-progress.js";
import { alertBox } from "../core/widgets.js";
import { job as text } from "../strings/compare.js";
/** @import { JobPayload } from "../core/payloads.js" */
/** @import { Answers, Details, JobQuestion } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */

const POLL_MS = 600;

class JobLine {
  /** @param {() => unknown} stop */
  constructor(stop) {
    this.words = el("p", { role: "status" });
    this.fill = el("span");
    this.track = el(
      "div",
      {
        class: "fx-job-track",
        role: "progressbar",
        "aria-label": text.waiting,
        hidden: true,
        "aria-valuemin": 0,
        "aria-valuemax": 100,
      },
      this.fill,
    );
    this.stop = buttonOf(text.stop, stop, { "data-testid": "fx-compare-stop", hidden: true });
    this.problem = el("div");
    this.node = el(
      "div",
      { class: "fx-job" },
      el("div", { class: "fx-job-line" }, el("div", { class: "fx-job-words" }, this.words, this.track), this.stop),
      this.problem,
    );
  }

  /**
   * @param {JobPayload | null} job
   * @param {boolean} ownJob
   */
  update(job, ownJob) {
    const live = isLive(job);
    this.node.dataset.state = job !== null && ownJob ? job.state : "none";
    this.words.textContent = this.sentence(job, ownJob, live);
    this.track.hidden = !live || !ownJob;
    this.stop.hidden = !live;
    this.stop.disabled = live && job.state === "stopping";
    if (!live) return;
    this.fill.style.width = `${(100 * job.fraction).toFixed(1)}%`;
    this.track.setAttribute("aria-valuenow", String(Math.round(100 * job.fraction)));
    this.track.setAttribute("aria-label", job.stage);
  }

  /**
   * @param {JobPayload | null} job
   * @param {boolean} ownJob
   * @param {boolean} live
   */
  sentence(job, ownJob, live) {
    if (job === null || (!ownJob && !live)) return "";
    if (live && !ownJob) return text.busy;
    if (job.state === "failed") return text.failed(job.message);
    if (job.state === "stopped") return text.stoppedKept[job.kind] ?? text.stopped;
    if (job.state === "stopping") return text.stopping;
    if (job.state === "waiting") return text.waiting;
    if (job.state === "done") return "";
    return job.seconds_left === null ? job.stage : text.left(job.stage, format.duration(job.seconds_left));
  }

  /** @param {string | null} message */
  fail(message) {
    this.problem.replaceChildren(...(message ? [alertBox(message)] : []));
  }
}

// A part asks `questions.state` when it opens and while work continues, and `questions.start` on submit.
export class ComparePart {
  /** The kind of its jobs, set by each part. */
  kind = "";
  /** Its questions to the server, set by each part. @type {{ state: JobQuestion, start: JobQuestion }} */
  questions;
  /** A question that starts work is not answered yet. */
  starting = false;
  /** Questions so far. */
  asked = 0;
  /** Whether the newest question was answered. @type {Promise<boolean>} */
  newest = Promise.resolve(false);
  /** @type {number} */
  timer;
  /** Milliseconds between questions while work continues. */
  poll = POLL_MS;
  /** @type {HTMLButtonElement} */
  startButton;
  /** @type {JobLine} */
  line;

  /**
   * @param {App} app
   * @param {string} name
   * @param {{ title: string }} words
   */
  constructor(app, name, words) {
    this.app = app;
    /** @type {JobPayload | null} */
    this.job = null;
    this.node = el("section", { class: "fx-compare-part", "data-testid": `fx-compare-${name}`, hidden: true });
    this.node.append(el("h3", { class: "fx-subtitle" }, words.title));
    this.line = new JobLine(() => this.stop());
  }

  get open() {
    return !this.node.hidden && this.app.isOpen("compare");
  }

  /** @param {JobPayload | null} job */
  isOwnJob(job) {
    return job !== null && job.kind === this.kind && job.run_id === this.app.run.info.run_id;
  }

  get busy() {
    return isLive(this.job);
  }

  /**
   * Asks, and again while work continues; whether the first question was answered.
   * @param {JobQuestion} [what]
   * @param {Details} [details]
   */
  watch(what = this.questions.state, details = {}) {
    clearTimeout(this.timer);
    this.newest = this.ask(what, details);
    return this.newest;
  }

  /**
   * One question. An answer that a newer question has overtaken is not shown: it may be about another token or layer,
   * or about the time before work started. Where it started work, that is asked for once more.
   * @param {JobQuestion} what
   * @param {Details} details
   * @returns {Promise<boolean>}
   */
  async ask(what, details) {
    const { run } = this.app;
    this.asked += 1;
    const { asked } = this;
    const answer = await this.app.request(what, details);
    if (run !== this.app.run) return false;
    if (asked !== this.asked && what === this.questions.state) return this.newest;
    if (asked !== this.asked && answer.error === undefined) {
      await this.watch();
      return true;
    }
    if (answer.error === undefined) this.take(answer);
    else {
      this.line.fail(answer.error);
      this.startButton.disabled = this.busy;
    }
    clearTimeout(this.timer);
    if (this.busy && this.open) this.timer = setTimeout(() => this.watch(), this.poll);
    return answer.error === undefined;
  }

  /** @param {Answers[JobQuestion]} answer */
  take(answer) {
    this.line.fail(null);
    this.job = answer.job;
    this.line.update(this.job, this.isOwnJob(this.job));
    this.startButton.disabled = this.busy;
    this.received(answer);
  }

  /**
   * @param {Details} details
   * @param {JobQuestion} [what]
   */
  start(details, what = this.questions.start) {
    this.startButton.disabled = this.starting = true;
    return this.watch(what, details).finally(() => {
      this.starting = false;
      this.startButton.disabled = this.busy;
      this.started();
    });
  }

  /** @returns {Promise<unknown>} */
  async stop() {
    const answer = await this.app.request("compare_stop");
    if (answer.error !== undefined) return this.line.fail(answer.error);
    this.job = answer.job;
    this.line.update(this.job, this.isOwnJob(this.job));
    return this.watch();
  }

  /**
   * Nothing is started before it is known what is at work already.
   * @param {string} label
   * @param {() => unknown} onclick
   */
  button(label, onclick) {
    this.startButton = buttonOf(label, onclick, {
      class: "fx-button fx-primary",
      "data-testid": "fx-compare-start",
      disabled: true,
    });
    return this.startButton;
  }

  /** After the answer to a question that starts work, also a refusal. */
  started() {}

  /**
   * Shows an answer; each part has its own.
   * @param {Answers[JobQuestion]} _answer
   */
  received(_answer) {}
}
