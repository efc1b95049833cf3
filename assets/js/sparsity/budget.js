// @ts-check
// Sliders for top-k, window and sinks: what they would keep, counted here, and their cost, as far as measured.
import { nats } from "../compare/cells.js";
import { buttonOf, el, newId } from "../core/dom.js";
import { format } from "../core/format.js";
import { interval95 } from "../core/interval.js";
import { alertBox } from "../core/widgets.js";
import { costOf, measuredPoints } from "./measured.js";
import { Trial } from "./trial.js";
import { budget as text } from "../strings/budget.js";
/** @import { GridCellPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { App } from "../shell/app.js" */

export class BudgetTrial {
  /** @type {Run} */
  run;
  /** @type {Trial} */
  trial;
  /** Settings measured on this text. @type {GridCellPayload[]} */
  cells = [];
  problem = "";
  /** The layer whose groups are on their way. @type {number | null} */
  waiting = null;
  drawing = 0;

  /**
   * @param {App} app
   * @param {() => void} changed the picture of pairs and the layers' bars follow
   */
  constructor(app, changed) {
    this.app = app;
    this.changed = changed;
    this.sliders = {
      topK: this.slider(text.topK, (at) => ({ topK: at })),
      window: this.slider(text.window, (at) => ({ window: this.trial.windows[at] })),
      sinks: this.slider(text.sinks, (at) => ({ sinks: at })),
    };
    this.reset = buttonOf(text.reset, () => this.set(this.trial.own), { "data-testid": "fx-budget-reset" });
    this.counts = el("div", { role: "status", "data-testid": "fx-budget-counts" });
    this.cost = el("p", { class: "fx-budget-cost", "data-testid": "fx-budget-cost" });
    this.note = el("p", { class: "fx-help" });
    this.controls = el(
      "div",
      { class: "fx-budget-controls" },
      Object.values(this.sliders).map(({ node }) => node),
      this.reset,
    );
    this.node = el(
      "section",
      { class: "fx-budget", "data-testid": "fx-budget" },
      el("h3", { class: "fx-subtitle" }, text.title),
      el("p", { class: "fx-help" }, text.help),
      this.controls,
      this.counts,
      this.cost,
      this.note,
    );
  }

  /**
   * @param {string} label
   * @param {(at: number) => Partial<import("./trial.js").Settings>} chosen
   */
  slider(label, chosen) {
    const id = newId("budget");
    /** @type {HTMLInputElement} */
    const input = el("input", {
      id,
      type: "range",
      class: "fx-range",
      min: 0,
      step: 1,
      oninput: () => this.set({ ...this.trial.settings, ...chosen(Number(input.value)) }),
    });
    const output = el("output", { class: "fx-budget-value", for: id });
    const node = el("div", { class: "fx-budget-slider" }, el("label", { for: id }, label), input, output);
    return { input, output, node };
  }

  update() {
    const { run } = this.app;
    if (this.run !== run) {
      this.run = run;
      this.trial = new Trial(run);
      this.cells = [];
      this.problem = "";
      this.waiting = null;
      const { topK, window, sinks } = this.sliders;
      [topK.input.min, topK.input.max] = ["1", String(run.numGroups)];
      window.input.max = String(this.trial.windows.length - 1);
      sinks.input.max = String(this.trial.mostSinks);
    }
    const byHand = run.info.changes.length > 0;
    this.controls.hidden = this.cost.hidden = this.counts.hidden = byHand;
    this.note.textContent = byHand ? text.byHand : text.note;
    if (byHand) return;
    if (!this.trial.isOwn) this.load();
    this.show();
  }

  /** @param {import("./trial.js").Settings} settings */
  set(settings) {
    this.trial.settings = { ...settings };
    this.load();
    this.show();
    const drawing = (this.drawing += 1); // one picture a frame, however fast a slider moves
    requestAnimationFrame(() => drawing === this.drawing && this.changed());
  }

  /** Groups of the layer, and what was measured, are requested once somebody moves a slider. */
  load() {
    const { run, trial, app } = this;
    const { layerIndex } = app;
    if (trial.order(layerIndex) !== undefined || this.waiting === layerIndex) return;
    this.waiting = layerIndex;
    this.problem = "";
    Promise.all([
      run.request("group_orders", { layer: run.layerIds[layerIndex] }),
      run.request("compare_grid"),
    ]).then(([orders, grid]) => {
      if (this.run !== run) return;
      this.waiting = null;
      if (orders.error === undefined) trial.take(orders);
      else this.problem = orders.error;
      if (grid.error === undefined) this.cells = grid.cells; // where it cannot be had, nothing was measured
      this.show();
      this.changed();
    });
  }

  show() {
    const { trial, run, app } = this;
    const { topK, window, sinks } = trial.settings;
    this.place(this.sliders.topK, topK, topK, text.groups(topK, run.numGroups));
    this.place(this.sliders.window, trial.windows.indexOf(window), format.count(window), text.tokens(window));
    this.place(this.sliders.sinks, sinks, sinks, text.tokens(sinks));
    this.reset.disabled = trial.isOwn;
    this.node.dataset.state = trial.isOwn ? "own" : trial.order(app.layerIndex) === undefined ? "waiting" : "counted";
    this.counts.replaceChildren(...this.countLines());
    this.cost.replaceChildren(...this.costLine());
  }

  /**
   * @param {{ input: HTMLInputElement, output: HTMLElement }} slider
   * @param {number} at
   * @param {string | number} shown
   * @param {string} spoken
   */
  place({ input, output }, at, shown, spoken) {
    input.value = String(at);
    input.setAttribute("aria-valuetext", spoken);
    output.textContent = String(shown);
  }

  /** @returns {HTMLElement[]} */
  countLines() {
    const { trial, run, app } = this;
    const { layerIndex } = app;
    const layer = run.layers[layerIndex];
    const kept = trial.kept(layerIndex);
    if (kept === null && this.problem) return [alertBox(this.problem, () => this.load())];
    if (kept === null) return [el("p", {}, text.waiting)];
    const strong = (/** @type {number} */ share) => el("strong", { class: "fx-number" }, format.percent(share, 1));
    const lines = [el("p", {}, text.layer(layer.layer, strong(kept), this.than(layer.retained_pairs)))];
    const every = trial.meanKept();
    if (every !== null)
      lines.push(
        el("p", {}, text.layers(strong(every), this.than(run.meanKept()), format.ratio(1 / every), run.slides)),
      );
    else lines.push(el("p", { class: "fx-help" }, text.oneLayer));
    return lines;
  }

  /** @param {number} share */
  than(share) {
    return this.trial.isOwn ? "" : text.than(format.percent(share, 1));
  }

  /** @returns {(Node | string)[]} */
  costLine() {
    const { trial, run } = this;
    const { topK, window, sinks } = trial.settings;
    /** @param {keyof typeof text.kinds} kind @param {...(Node | string)} words */
    const line = (kind, ...words) => {
      this.cost.dataset.kind = kind;
      return [el("span", { class: "fx-status-chip" }, text.kinds[kind]), " ", ...words];
    };
    const points = measuredPoints(
      { config: run.config, quality: run.quality, retained: run.meanKept() },
      this.cells,
    );
    const cost = sinks === trial.own.sinks ? costOf(points, topK, window) : { kind: /** @type {const} */ ("unknown") };
    if (cost.kind === "measured") {
      const { delta, low, high, retained } = cost.point;
      const ran = trial.isOwn ? "" : text.ran(format.percent(retained, 1));
      return line("measured", text.measured(nats(delta), interval95(low, high, nats), ran));
    }
    if (cost.kind === "interpolated") {
      const ends = cost.between.map((point) => [format.count(point.window), format.signed(point.delta, 3)]);
      return line("interpolated", text.interpolated(format.signed(cost.delta, 3), ends), " ", this.measureButton());
    }
    return line("unknown", sinks === trial.own.sinks ? text.unknown : text.otherSinks, " ", this.measureButton());
  }

  measureButton() {
    return buttonOf(text.measure, () => this.app.openSettings());
  }
}
