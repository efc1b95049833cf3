// @ts-check
// A training shown as a film of map and mask: one frame for every file that it kept on the way.
import { range } from "../core/arrays.js";
import { buttonOf, el, newId, setText } from "../core/dom.js";
import { format, sentence } from "../core/format.js";
import { groupLabel } from "../core/labels.js";
import { KEPT_CAUSES } from "../core/pair-rule.js";
import { callServer } from "../core/server.js";
import { themeOf } from "../core/theme.js";
import { alertBox, choiceOf, progressBox } from "../core/widgets.js";
import { causeSwatch } from "../sparsity/causes.js";
import { sparsity as sparsityText } from "../strings/sparsity.js";
import { training as trainingText } from "../strings/training.js";
import { Frames } from "./frames.js";
import { FilmMap, FilmMask } from "./pictures.js";
/** @import { TrainingPayload } from "../core/payloads.js" */
/** @import { TrainingServer } from "../core/types.js" */
/** @import { FilmOrder } from "./frames.js" */

const text = trainingText.film;

const FRAME_MS = 500; // from one frame to the next

const REST_MS = 150; // of them the pictures stand still

export class Film {
  /** @type {string} */
  trainingId;
  /** That the pictures were drawn in. @type {string} */
  theme;

  /**
   * @param {HTMLElement} root
   * @param {TrainingServer} server
   */
  constructor(root, server) {
    this.root = root;
    this.server = server;
    /** @type {Frames | null} */
    this.frames = null;
    this.frame = 0;
    /** @type {FilmOrder} */
    this.order = "group";
    /** The layer and text that are asked for, or those of the answer. @type {{ layer?: number, text?: string }} */
    this.wanted = {};
    this.asking = 0;
    this.playing = false;
    this.map = new FilmMap(root, text.map);
    this.mask = new FilmMask(root, text.mask);
    this.make = buttonOf(text.make, () => this.ask(), { "data-testid": "fx-film-make" });
    this.message = el("div", { class: "fx-film-message" });
    this.play = buttonOf(text.play, () => this.toggle(), { "data-testid": "fx-film-play" });
    const id = newId("film");
    /** @type {HTMLInputElement} */
    this.slider = el("input", {
      id,
      type: "range",
      class: "fx-range",
      min: 0,
      step: 1,
      "data-testid": "fx-film-frame",
      oninput: () => this.show(Number(this.slider.value)),
    });
    this.step = el("output", { class: "fx-film-step", for: id, "data-testid": "fx-film-step" });
    /** @type {HTMLSelectElement} */
    this.layers = el("select", {
      onchange: () => this.ask({ ...this.wanted, layer: Number(this.layers.value) }),
      "data-testid": "fx-film-layer",
    });
    /** @type {HTMLSelectElement} */
    this.texts = el("select", {
      onchange: () => this.ask({ ...this.wanted, text: this.texts.value }),
      "data-testid": "fx-film-text",
    });
    this.words = el("p", { class: "fx-help", "data-testid": "fx-film-words" });
    this.spread = el("p", { class: "fx-help" });
    this.groups = el("ul", { class: "fx-arranged-groups" });
    this.causes = el("ul", { class: "fx-arranged-groups" });
    this.tokens = el("p", { class: "fx-film-tokens", "aria-label": text.tokens });
    this.help = el("p", { class: "fx-help" });
    this.body = this.layout(id);
    this.node = el(
      "section",
      { class: "fx-film", "data-testid": "fx-film" },
      el("h3", { class: "fx-subtitle" }, text.title),
      this.help,
      this.make,
      this.message,
      this.body,
    );
    this.reset("");
  }

  /** @param {string} id of the slider */
  layout(id) {
    const controls = el(
      "div",
      { class: "fx-film-controls" },
      this.play,
      el("label", { class: "fx-film-slider", for: id }, text.frame, this.slider),
      this.step,
      el("label", { class: "fx-select" }, text.layer, this.layers),
      el("label", { class: "fx-select" }, text.text, this.texts),
    );
    const causes = KEPT_CAUSES.map((cause) => el("li", {}, causeSwatch(cause), ` ${sparsityText.causes[cause]}`));
    this.causes.replaceChildren(...causes);
    const pictures = el(
      "div",
      { class: "fx-film-pictures" },
      el("div", {}, el("h4", { class: "fx-film-title" }, text.map), this.map.node, this.spread),
      el(
        "div",
        {},
        el("h4", { class: "fx-film-title" }, text.mask),
        this.mask.node,
        choiceOf(text.order, text.orders, this.order, (order) => {
          this.order = order;
          this.show(this.frame);
        }),
        this.causes,
      ),
    );
    return el("div", { class: "fx-film-body" }, controls, this.words, this.groups, pictures, this.tokens);
  }

  /** @param {string} trainingId */
  reset(trainingId) {
    this.trainingId = trainingId;
    this.stop();
    this.asking += 1;
    this.frames = null;
    this.frame = 0;
    this.wanted = {};
    this.body.hidden = true;
    setText(this.help, text.help(false));
    this.make.hidden = false;
    this.message.replaceChildren();
  }

  /** @param {TrainingPayload} run that is looked at */
  update(run) {
    if (run.training_id !== this.trainingId) this.reset(run.training_id);
    this.node.hidden = run.kind !== "centroids";
    const theme = themeOf(this.root);
    if (this.frames !== null && theme !== this.theme) this.show(this.frame);
    this.theme = theme;
  }

  /**
   * Files are read some at a time: what is there is shown, and the rest asked for.
   * @param {{ layer?: number, text?: string }} [wanted]
   */
  async ask(wanted = this.wanted) {
    const asking = (this.asking += 1);
    this.wanted = wanted;
    this.stop();
    this.make.hidden = true;
    this.message.replaceChildren(progressBox(text.reading));
    for (;;) {
      const answer = await callServer(() => this.server.film({ id: this.trainingId, ...wanted }));
      if (asking !== this.asking) return;
      if (answer.error !== undefined) {
        this.message.replaceChildren(alertBox(sentence(answer.error)));
        this.make.hidden = this.frames !== null;
        if (this.frames !== null) this.choose(this.frames.film);
        return;
      }
      const first = this.frames === null;
      this.take(new Frames(answer));
      if (answer.waiting === 0) {
        this.message.replaceChildren();
        if (first) this.play.focus();
        if (!still()) this.start();
        return;
      }
      const total = answer.waiting + answer.steps.length;
      this.message.replaceChildren(progressBox(text.read(answer.steps.length, total)));
    }
  }

  /** @param {Frames} frames */
  take(frames) {
    const { film } = frames;
    this.frames = frames;
    this.body.hidden = false;
    this.slider.max = String(frames.last);
    this.layers.replaceChildren(...film.layers.map((layer) => el("option", { value: layer }, String(layer))));
    this.texts.replaceChildren(...film.texts.map((name) => el("option", { value: name }, name)));
    this.choose(film);
    setText(this.help, text.help(film.has_budget));
    setText(this.spread, text.spread(format.percent(film.spread, 0)));
    const tokens = film.pieces.map((piece) => el("span", { class: "fx-film-token" }, piece));
    this.tokens.replaceChildren(...tokens);
    this.show(Math.min(this.frame, frames.last));
  }

  /**
   * The layer and text of what is shown.
   * @param {{ layer: number, text: string }} film
   */
  choose({ layer, text: shown }) {
    this.wanted = { layer, text: shown };
    this.layers.value = String(layer);
    this.texts.value = shown;
  }

  /** @param {number} frame */
  show(frame) {
    const frames = /** @type {Frames} */ (this.frames);
    this.frame = frame;
    this.map.paint(frames, frame, frame, 1);
    this.mask.paint(frames, frame, this.order);
    this.describe();
  }

  describe() {
    const { frame } = this;
    const frames = /** @type {Frames} */ (this.frames);
    const { film, numTokens, steps } = frames;
    const step = format.count(steps[frame]);
    const share = format.percent(this.mask.kept / ((numTokens * (numTokens + 1)) / 2), 1);
    const moved = format.percent(frames.changed(frame) / numTokens, 0);
    this.slider.value = String(frame);
    this.slider.setAttribute("aria-valuetext", text.step(step));
    setText(this.step, text.step(step));
    const before = frame && format.count(steps[frame - 1]);
    setText(this.words, text.words(step, share, frame === 0 ? null : moved, before, film.has_budget));
    this.groups.replaceChildren(
      ...frames.sizes(frame).map((size, group) =>
        el(
          "li",
          {},
          el("span", { class: "fx-chip", "data-shade": `g${group}` }, groupLabel(group)),
          ` ${format.percent(size / numTokens, 0)}`,
        ),
      ),
    );
    range(numTokens).forEach((pos) => {
      /** @type {HTMLElement} */ (this.tokens.children[pos]).dataset.shade = `g${frames.top(frame, pos)}`;
    });
  }

  toggle() {
    if (this.playing) this.stop();
    else this.start();
  }

  stop() {
    this.playing = false;
    setText(this.play, text.play);
  }

  /** From the beginning, where the film is at its end. */
  start() {
    const frames = /** @type {Frames} */ (this.frames);
    if (this.frame === frames.last) this.show(0);
    this.playing = true;
    setText(this.play, text.pause);
    let begun = performance.now();
    const next = () => {
      if (!this.playing || this.frames !== frames) return;
      const passed = performance.now() - begun;
      if (passed >= FRAME_MS) {
        begun = performance.now();
        this.show(this.frame + 1);
        if (this.frame === frames.last) return void this.stop();
      } else if (passed > REST_MS && !still())
        this.map.paint(frames, this.frame, this.frame + 1, (passed - REST_MS) / (FRAME_MS - REST_MS));
      requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  }
}

const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;
