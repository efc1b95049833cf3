// @ts-check
// One prompt continued by full attention and by Focus, every token in the colour of its group in the open layer.
import { ComparePart } from "./part.js";
import { TokenWalk } from "./token-walk.js";
import { median, range } from "../core/arrays.js";
import { el, newId } from "../core/dom.js";
import { dropdown, labelledField } from "../core/fields.js";
import { format } from "../core/format.js";
import { shortestWindow } from "../core/heads.js";
import { groupLabel, visibleToken } from "../core/labels.js";
import { hintButton } from "../core/tooltip.js";
import { generation as text } from "../strings/compare.js";
/** @import { GeneratedPayload, GenerationPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { JobQuestion } from "../core/types.js" */

/** @typedef {"full" | "focus"} Mode */

const PROMPT_TOKENS = 300;

/** @type {Mode[]} */
const MODES = ["full", "focus"];

export class CompareGeneration extends ComparePart {
  /** @type {Run} */
  run;

  /** @param {App} app */
  constructor(app) {
    super(app, "generation", text);
    this.kind = "generation";
    /** @type {{ state: JobQuestion, start: JobQuestion }} */
    this.questions = { state: "compare_generation", start: "compare_generation_start" };
    this.temperature = "0";
    /** @type {GeneratedPayload} */
    this.sides = {};
    this.help = el("p", { class: "fx-help" });
    this.prompt = el("textarea", { id: newId("prompt"), rows: 5, spellcheck: "false" });
    this.count = el("input", { id: newId("count"), type: "number", min: 1, max: 512, value: 60 });
    this.form = el("form", { class: "fx-form", onsubmit: (event) => event.preventDefault() });
    const letters = el("input", {
      type: "checkbox",
      onchange: (event) => this.results.classList.toggle("fx-pair-letters", event.target.checked),
    });
    const sampling = dropdown(
      text.sampling,
      text.temperatures,
      this.temperature,
      (value) => (this.temperature = value),
      hintButton(app.tooltip, text.sampling, text.samplingHint),
    );
    this.form.append(
      labelledField(text.tokens, this.count),
      sampling,
      this.button(text.start, () => this.submit()),
    );
    this.divergence = el("p", { class: "fx-muted" });
    this.bodies = Object.fromEntries(
      MODES.map((mode) => [
        mode,
        el("div", {
          class: "fx-pair-text",
          "data-side": mode,
          "data-testid": `fx-generated-${mode}`,
          role: "group",
          "aria-live": "off",
        }),
      ]),
    );
    this.walks = Object.fromEntries(
      MODES.map((mode) => [
        mode,
        new TokenWalk(this.bodies[mode], (token) => (token === null ? app.tooltip.hide() : this.showTooltip(token))),
      ]),
    );
    this.notes = Object.fromEntries(MODES.map((mode) => [mode, el("p", { class: "fx-help" })]));
    this.results = el(
      "div",
      { class: "fx-pair" },
      MODES.map((mode) =>
        el("section", {}, el("h4", { class: "fx-side-title" }, text[mode]), this.bodies[mode], this.notes[mode]),
      ),
    );
    this.node.append(
      this.help,
      el("div", { class: "fx-field fx-wide" }, el("label", { for: this.prompt.id }, text.prompt), this.prompt),
      this.form,
      this.line.node,
      this.divergence,
      el("label", { class: "fx-toggle" }, letters, text.letters),
      this.results,
    );
    for (const mode of MODES) {
      this.bodies[mode].addEventListener("mouseover", (event) =>
        this.showTooltip(/** @type {HTMLElement} */ (event.target)),
      );
      this.bodies[mode].addEventListener("mouseleave", () => app.tooltip.hide());
    }
  }

  get layer() {
    return this.run.layerIds[this.app.layerIndex];
  }

  update() {
    if (this.run !== this.app.run) {
      this.run = this.app.run;
      this.sides = {};
      this.help.textContent = text.help(format.count(shortestWindow(this.run)));
      const { numTokens } = this.run;
      this.prompt.value = this.run.text(Math.max(0, numTokens - PROMPT_TOKENS), numTokens);
      this.show();
      this.watch();
      return;
    }
    if (this.busy) this.watch();
    this.recolour();
  }

  submit() {
    return this.start({
      prompt: this.prompt.value,
      max_tokens: Number(this.count.value),
      temperature: Number(this.temperature),
    });
  }

  /** @param {GenerationPayload} answer */
  received(answer) {
    this.sides = answer.sides;
    this.show();
  }

  show() {
    for (const mode of MODES) {
      const body = this.bodies[mode];
      const pieces = this.sides[mode]?.pieces ?? [];
      body.setAttribute("role", pieces.length > 0 ? "listbox" : "group"); // a list box may not be empty
      if (pieces.length === 0) body.replaceChildren(el("span", { class: "fx-muted" }, this.busy ? "" : text.empty));
      else this.appendTokens(body, pieces);
      this.notes[mode].textContent = this.note(mode, pieces);
    }
    this.divergence.textContent = this.divergenceText();
    this.recolour();
  }

  /**
   * Written tokens stay in place: only what is new is added.
   * @param {HTMLElement} body
   * @param {string[]} pieces
   */
  appendTokens(body, pieces) {
    const shownTokens = body.querySelectorAll(".fx-pair-token");
    const isPrefix =
      shownTokens.length > 0 &&
      shownTokens.length <= pieces.length &&
      [...shownTokens].every((node, i) => node.textContent === pieces[i]);
    if (!isPrefix) body.replaceChildren();
    body.append(
      ...pieces
        .slice(isPrefix ? shownTokens.length : 0)
        .map((piece) =>
          el("span", { class: "fx-pair-token", role: "option", tabindex: "-1", "data-shade": "none" }, piece),
        ),
    );
  }

  recolour() {
    for (const mode of MODES) {
      const groups = this.sides[mode]?.groups ?? [];
      this.bodies[mode].setAttribute("aria-label", text.textLabel(text[mode], this.layer));
      this.bodies[mode]
        .querySelectorAll(".fx-pair-token")
        .forEach((node, i) => this.paint(node, i, groups[i] ? groups[i][this.layer] : undefined));
      this.walks[mode].refresh();
    }
  }

  /**
   * @param {HTMLElement} node
   * @param {number} i
   * @param {number | undefined} group
   */
  paint(node, i, group) {
    const label = group === undefined ? null : groupLabel(group);
    node.dataset.shade = label === null ? "none" : `g${group}`;
    node.setAttribute(
      "aria-label",
      text.spoken(visibleToken(node.textContent), format.count(i + 1), label, this.layer),
    );
    if (label !== null) Object.assign(node.dataset, { group, label });
    else for (const name of ["group", "label"]) delete node.dataset[name];
  }

  /**
   * @param {Mode} mode
   * @param {string[]} pieces
   */
  note(mode, pieces) {
    const side = this.sides[mode];
    const { prompt_tokens: promptTokens } = this.sides;
    if (side === undefined || promptTokens === undefined || pieces.length === 0) return "";
    const speed = text.speed(
      format.ms(median(side.ms)),
      format.count(side.ms.length),
      format.count(promptTokens),
    );
    return mode === "full" && side.groups.length === 0 ? `${speed}. ${text.groupsLater}` : speed;
  }

  divergenceText() {
    const { full, focus } = this.sides;
    const shared = Math.min(full?.ids.length ?? 0, focus?.ids.length ?? 0);
    if (!full || !focus || shared === 0) return "";
    const at = range(shared).find((i) => full.ids[i] !== focus.ids[i]);
    if (at === undefined) return text.same;
    return at === 0 ? text.differentFromStart : text.samePrefix(format.count(at));
  }

  /** @param {HTMLElement} token */
  showTooltip(token) {
    const { label } = token.dataset;
    if (label === undefined) return;
    this.app.tooltip.show(el("div", {}, text.group(label, this.layer)), token.getBoundingClientRect());
  }
}
