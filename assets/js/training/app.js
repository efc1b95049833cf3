// @ts-check
// The Training tab: requests the trainings and curves, and updates the list, the open training and the charts.
import { groupColour } from "../core/colours.js";
import { buttonOf, el, emptyState } from "../core/dom.js";
import { sentence } from "../core/format.js";
import { resizePlots } from "../core/plot.js";
import { callServer } from "../core/server.js";
import { installShades } from "../core/shades.js";
import { themeOf, watchTheme } from "../core/theme.js";
import { Tooltip } from "../core/tooltip.js";
import { alertBox, progressBox } from "../core/widgets.js";
import { training as text } from "../strings/training.js";
import { TrainingCharts } from "./charts.js";
import { Curve } from "./curve.js";
import { Detail } from "./detail.js";
import { Film } from "./film.js";
import { List } from "./list.js";
import { Newest } from "./newest.js";
import { LIVE } from "./status.js";
/** @import { CurvePayload, TrainingJobPayload, TrainingPayload } from "../core/payloads.js" */
/** @import { TrainingsPayload, UsedTrainingPayload } from "../core/payloads.js" */
/** @import { Answer, TrainingActions, TrainingServer } from "../core/types.js" */

const POLL_LIVE = 2000;

const POLL_IDLE = 6000;

const POLL_HIDDEN = 500;

const MOST_POINTS = 8000;

/** The curves of a training by mode, as far as they were sent. @typedef {Record<string, Curve>} CurvesByMode */
/** `part` changes when a training starts anew. @typedef {{ part: string, modes: CurvesByMode }} Curves */

const apps = new WeakMap();

export class App {
  /** @type {HTMLElement} */
  root;
  /** @type {TrainingServer} */
  server;
  /** @type {(file: UsedTrainingPayload) => unknown} */
  choose;
  /** @type {TrainingPayload[]} */
  runs;
  /** The ids of the trainings that are shown. @type {string[]} */
  shown;
  /** By training id. @type {Map<string, Curves>} */
  curves;
  /** @type {TrainingJobPayload | null} */
  job;
  /** The folder of the training that is starting. @type {string | null} */
  expected;
  /** @type {boolean} */
  busy;
  /** @type {string | null} */
  problem;
  /** @type {string | null} */
  serverProblem;
  /** @type {boolean} */
  loaded;
  /** @type {boolean} */
  disposed;
  /** @type {boolean} */
  requesting;
  /** @type {number} */
  timer;
  /** @type {string} */
  shownMessage;

  /**
   * @param {HTMLElement} root
   * @param {TrainingServer} server
   * @param {(file: UsedTrainingPayload) => unknown} choose
   */
  constructor(root, server, choose) {
    Object.assign(this, {
      root,
      server,
      choose,
      runs: [],
      shown: [],
      curves: new Map(),
      job: null,
      expected: null,
      busy: false,
      problem: null,
      serverProblem: null,
      loaded: false,
    });
    installShades();
    this.tooltip = new Tooltip(root);
    this.message = el("div", { class: "fx-message" }, progressBox(text.loading));
    this.detail = new Detail(this);
    this.list = new List(this);
    this.newest = new Newest(this.tooltip);
    this.charts = new TrainingCharts(this);
    this.film = new Film(root, server);
    this.waiting = el("p", { class: "fx-muted fx-no-curve" }, text.noCurve);
    this.content = el(
      "div",
      { class: "fx-training", hidden: true },
      this.list.node,
      this.detail.node,
      this.newest.node,
      this.waiting,
      this.charts.node,
      this.film.node,
    );
    root.classList.add("fx-root");
    root.replaceChildren(this.message, this.content, this.tooltip.node);
    this.themeObserver = watchTheme(root, () => this.draw());
    this.sizeObserver = new ResizeObserver(() => this.visible() && resizePlots(root));
    this.sizeObserver.observe(root);
    this.poll();
  }

  dispose() {
    this.disposed = true;
    this.film.reset("");
    clearTimeout(this.timer);
    this.themeObserver.disconnect();
    this.sizeObserver.disconnect();
  }

  visible() {
    return !document.hidden && this.root.offsetParent !== null;
  }

  // Asks only while somebody can see the answer.
  async poll() {
    clearTimeout(this.timer);
    if (this.disposed) return;
    if (!this.visible()) return this.later(POLL_HIDDEN);
    if (this.requesting) return undefined;
    this.requesting = true;
    const requested = Object.fromEntries(this.shown.map((id) => [id, this.lastSteps(id)]));
    const answer = await callServer(() => this.server.load({ shown: requested }));
    this.requesting = false;
    if (this.disposed) return undefined;
    if (answer.error !== undefined) {
      this.serverProblem = answer.error;
      this.draw();
      return this.later(POLL_IDLE);
    }
    const complete = this.take(answer, requested);
    if (complete && this.visible()) this.draw();
    const live =
      this.runs.some((run) => LIVE.includes(run.status)) ||
      (this.job !== null && ["starting", "stopping"].includes(this.job.state));
    return this.later(complete ? (live || this.expected ? POLL_LIVE : POLL_IDLE) : 0);
  }

  /** @param {number} milliseconds */
  later(milliseconds) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), milliseconds);
  }

  /** @param {string} id */
  lastSteps(id) {
    const curves = this.curves.get(id);
    return curves ? Object.fromEntries(Object.entries(curves.modes).map(([mode, curve]) => [mode, curve.last])) : {};
  }

  /**
   * Returns false when something that is shown has not been requested yet, or must be requested from the start.
   * @param {TrainingsPayload} answer
   * @param {Record<string, Record<string, number>>} requested
   */
  take(answer, requested) {
    this.loaded = true;
    this.serverProblem = null;
    this.runs = answer.trainings;
    this.job = answer.job;
    const expected = this.runs.find((run) => run.out === this.expected && LIVE.includes(run.status));
    if (expected) {
      this.expected = null;
      this.shown = [expected.training_id];
    } else if (this.expected && this.job === null && this.runs.some((run) => run.out === this.expected)) {
      this.shown = [/** @type {TrainingPayload} */ (this.runs.find((run) => run.out === this.expected)).training_id];
      this.expected = null;
    } else if (this.job !== null && this.job.state !== "starting" && this.job.state !== "stopping")
      this.expected = null;
    const byId = new Map(this.runs.map((run) => [run.training_id, run]));
    this.shown = this.shown.filter((id) => byId.has(id));
    if (this.shown.length === 0 && this.runs.length > 0)
      this.shown = [(this.runs.find((run) => LIVE.includes(run.status)) || this.runs[0]).training_id];
    return this.shown
      .map((id) => this.takeCurve(/** @type {TrainingPayload} */ (byId.get(id)), answer.curves[id], id in requested))
      .every(Boolean);
  }

  /**
   * @param {TrainingPayload} run
   * @param {Record<string, CurvePayload>} parts
   * @param {boolean} wasRequested
   */
  takeCurve(run, parts, wasRequested) {
    const held = this.curves.get(run.training_id);
    let curves = held;
    if (
      curves === undefined ||
      curves.part !== run.part ||
      Object.values(curves.modes).some((curve) => curve.length > MOST_POINTS)
    ) {
      curves = { part: run.part, modes: {} };
      this.curves.set(run.training_id, curves);
      if (!wasRequested || held !== undefined) return false;
    }
    for (const [mode, part] of Object.entries(parts || {})) {
      curves.modes[mode] = curves.modes[mode] || new Curve();
      curves.modes[mode].append(part);
    }
    return wasRequested;
  }

  /** @param {string} id */
  colourOf(id) {
    return groupColour(this.shown.indexOf(id), themeOf(this.root));
  }

  draw() {
    if (!this.loaded && this.serverProblem === null) return;
    this.tooltip.hide();
    this.drawMessage();
    this.content.hidden = this.runs.length === 0;
    if (this.content.hidden) return;
    const shown = this.shown.flatMap((id) => this.runs.filter((run) => run.training_id === id));
    this.detail.update(shown[0], this.busy);
    this.film.update(shown[0]);
    this.list.update(this.runs);
    this.newest.update(shown, (id) => this.colourOf(id));
    const lines = shown.flatMap((run) =>
      Object.entries(this.curves.get(run.training_id)?.modes ?? {}).map(([mode, curve]) => ({
        run,
        mode,
        curve,
        colour: this.colourOf(run.training_id),
      })),
    );
    const some = lines.some((line) => line.curve.length > 0);
    this.waiting.hidden = some;
    this.charts.node.hidden = !some;
    if (some) this.charts.update(lines);
  }

  drawMessage() {
    const key = JSON.stringify([this.problem, this.serverProblem, this.job, this.runs.length === 0, this.busy]);
    if (key === this.shownMessage) return;
    this.shownMessage = key;
    const parts = [];
    for (const problem of [this.problem, this.serverProblem])
      if (problem !== null) parts.push(alertBox(sentence(problem)));
    if (this.job !== null) parts.push(this.jobMessage(this.job));
    if (parts.length === 0 && this.runs.length === 0) parts.push(emptyState(text.empty.title, text.empty.body));
    this.message.replaceChildren(...parts);
    this.message.hidden = parts.length === 0;
  }

  /** @param {TrainingJobPayload} given */
  jobMessage({ state, name, message }) {
    if (state === "failed") return alertBox(text.failedStart(name, message));
    if (state === "stopped") return el("p", { class: "fx-run-note", role: "status" }, text.stoppedStart(name));
    const stop = buttonOf(text.stop, () => this.runAction("stop", null), {
      disabled: state === "stopping" || this.busy,
    });
    return el(
      "div",
      { class: "fx-starting" },
      progressBox(state === "stopping" ? text.stoppingStart(name) : text.starting(name)),
      stop,
    );
  }

  /**
   * `name` is stop, resume or use; `id` null means the training that is only starting.
   * @param {"stop" | "resume" | "use"} name
   * @param {string | null} [id]
   */
  async runAction(name, id = this.shown[0]) {
    if (this.busy) return;
    this.busy = true;
    this.problem = null;
    this.draw();
    /** @type {(request: { id: string | null }) => Promise<Answer<TrainingActions[keyof TrainingActions]>>} */
    const action = this.server[name];
    const answer = await callServer(() => action({ id }));
    this.busy = false;
    if (answer.error !== undefined) this.problem = answer.error;
    else if ("sha256" in answer) this.choose(answer);
    else if ("out" in answer) this.expected = answer.out;
    this.draw();
    this.poll();
  }

  /** @param {string} out */
  expect(out) {
    this.expected = out;
    this.problem = null;
    this.poll();
  }

  /** @param {string} id */
  toggle(id) {
    const remaining = this.shown.filter((other) => other !== id);
    if (!this.shown.includes(id)) this.shown = [...this.shown, id];
    else if (remaining.length > 0) this.shown = remaining;
    this.list.update(this.runs);
    this.poll();
  }

  /** @param {string} id */
  showOnly(id) {
    this.shown = [id];
    this.list.update(this.runs);
    this.poll();
  }
}

/** The Training tab, one per root element. */
export const FocusTraining = {
  /**
   * @param {HTMLElement} root
   * @param {TrainingServer} server
   * @param {(file: UsedTrainingPayload) => unknown} choose
   */
  create(root, server, choose) {
    if (apps.has(root)) apps.get(root).dispose();
    const app = new App(root, server, choose);
    apps.set(root, app);
    /** @param {string} out */
    const expect = (out) => app.expect(out);
    return { expect };
  },
};
