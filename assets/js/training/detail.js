// @ts-check
// The open training: settings, progress, messages and buttons.
import { buttonOf, el, setText } from "../core/dom.js";
import { format, sentence } from "../core/format.js";
import { hintButton } from "../core/tooltip.js";
import { training as text } from "../strings/training.js";
import { LIVE } from "./status.js";
/** @import { TrainingPayload } from "../core/payloads.js" */
/** @import { App } from "./app.js" */

export class Detail {
  /** @type {string} */
  shownFacts;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.title = el("h2", { class: "fx-title" });
    this.status = el("span", { class: "fx-status-chip", "data-testid": "fx-training-status" });
    this.settings = el("span");
    this.facts = el("ul", { class: "fx-facts" });
    this.fill = el("span");
    const bar = { class: "fx-run-progress", role: "progressbar", "aria-label": text.progressLabel };
    this.progress = el("div", { ...bar, "aria-valuemin": 0 }, this.fill);
    this.times = el("p", { class: "fx-run-times" });
    this.message = el("p", { class: "fx-run-message" });
    this.validation = el("p", { class: "fx-run-validation" });
    this.stop = this.button(text.stop, "stop", () => app.runAction("stop"));
    this.resume = this.button(text.resume, "resume", () => app.runAction("resume"));
    this.use = this.button(text.use, "use", () => app.runAction("use"));
    const hint = hintButton(app.tooltip, text.settingsSubject, text.settingsHint);
    const words = el(
      "div",
      { class: "fx-run-words" },
      el("div", { class: "fx-run-title" }, this.title, this.status),
      el("p", { class: "fx-settings" }, this.settings, hint),
      this.facts,
    );
    this.node = el(
      "div",
      { class: "fx-run" },
      el(
        "div",
        { class: "fx-run-head" },
        words,
        el("div", { class: "fx-run-actions" }, this.use, this.resume, this.stop),
      ),
      this.progress,
      this.times,
      this.message,
      this.validation,
    );
  }

  /**
   * @param {string} label
   * @param {string} name
   * @param {() => unknown} onclick
   */
  button(label, name, onclick) {
    return buttonOf(label, onclick, { "data-testid": `fx-training-${name}` });
  }

  /**
   * @param {TrainingPayload} run
   * @param {boolean} busy
   */
  update(run, busy) {
    const live = LIVE.includes(run.status);
    setText(this.title, run.name);
    setText(this.status, text.statuses[run.status]);
    this.status.dataset.status = run.status;
    setText(this.settings, run.config.num_groups ? text.settings(run) : run.kind);
    const facts = text.facts(run, format).join("\n");
    if (facts !== this.shownFacts) this.facts.replaceChildren(...facts.split("\n").map((fact) => el("li", {}, fact)));
    this.shownFacts = facts;
    this.updateProgress(run, live);
    const message = run.status === "stopping" ? text.stopping : run.message;
    setText(this.message, message ? sentence(message) : "");
    this.message.hidden = !message;
    this.message.classList.toggle("fx-bad", run.status === "failed");
    this.updateValidation(run);
    this.stop.hidden = !live;
    this.stop.disabled = busy || run.status === "stopping";
    this.resume.hidden = !run.resumable;
    this.use.hidden = !run.usable;
    this.resume.disabled = this.use.disabled = busy;
  }

  /**
   * @param {TrainingPayload} run
   * @param {boolean} live
   */
  updateProgress(run, live) {
    this.fill.style.width = `${(100 * run.step) / run.steps}%`;
    this.progress.dataset.status = run.status;
    this.progress.setAttribute("aria-valuemax", String(run.steps));
    this.progress.setAttribute("aria-valuenow", String(run.step));
    const parts = [text.progress(format.count(run.step), format.count(run.steps))];
    if (run.step > 0) parts.push((live ? text.elapsed : text.took)(format.duration(run.elapsed)));
    if (live && run.step === run.steps) parts.push(text.lastSteps);
    else if (live && run.remaining !== null) parts.push(text.remaining(format.duration(run.remaining)));
    setText(this.times, parts.join(" · "));
  }

  /** @param {TrainingPayload} given */
  updateValidation({ validation, config }) {
    const { full, scored = 0, focus: settings = {}, domains = [] } = validation;
    this.validation.hidden = full === undefined;
    if (full === undefined) return;
    const focus = Object.entries(settings).map(([name, value]) =>
      text.validationPart(name.replace("=", "\u00a0=\u00a0"), format.perplexity(value)),
    );
    const budget = (config.exceptions ?? 0) > 0;
    const words = text.validation(format.count(scored), domains, format.perplexity(full), focus.join(", "), budget);
    setText(this.validation, words);
  }
}
