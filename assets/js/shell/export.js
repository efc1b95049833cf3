// @ts-check
// The export dialog: a table, figure, bundle or report of one run, made by the server and then downloaded.
import { copyFrom } from "../core/clipboard.js";
import { buttonOf, el, newId } from "../core/dom.js";
import { JobProgress, isLive } from "../core/job-progress.js";
import { alertBox, choiceOf, progressBox } from "../core/widgets.js";
import { itemNamed, middleOf } from "./export-choice.js";
import { endFields, markEnds, maskHeads, maskNotes, maskQuestion } from "./export-mask.js";
import { exporting as text } from "../strings/export.js";
/** @import { Choice } from "./export-choice.js" */
/** @import { ExportChoicesPayload, ExportFilePayload } from "../core/payloads.js" */
/** @import { ExportPayload, JobPayload } from "../core/payloads.js" */
/** @import { RequestAnswer, Details, UiEvent } from "../core/types.js" */

/**
 * The run to export, and its open layer and head if there is one.
 * @typedef {{ request: RequestAnswer, run: string, layer: number | null, head: number | null }} ExportSource
 */

const POLL_MS = 400;
const TYPING_MS = 300;

/** @type {Dialog | null} */
let opened = null;

class Dialog {
  /** @type {RequestAnswer} */
  request;
  /** @type {string} */
  run;
  /** @type {number | null} */
  layer;
  /** @type {number | null} */
  head;
  /** @type {string} */
  kind;
  /** @type {number} */
  requestId;
  /** @type {ExportChoicesPayload} */
  choices;
  /** @type {Choice} */
  options;
  /** @type {string} */
  id;
  /** @type {JobPayload} */
  job;
  /** @type {number} */
  timer;
  /** @type {number} */
  typing;
  /** Where what is wrong with the choice is said: below the fields that are typed, else below the command.
   * @type {HTMLElement | null} */
  problem;
  /** @type {HTMLDialogElement} */
  node;

  /**
   * `request(what, details)` asks the server about the run; `layer` and `head` (see `runHead`) are the open ones, null
   * where none is.
   * @param {ExportSource} given
   */
  constructor({ request, run, layer, head }) {
    Object.assign(this, { request, run, layer, head, kind: "table", requestId: 0 });
    const title = el("h2", { class: "fx-title", id: newId("export"), tabindex: "-1", autofocus: true }, text.title);
    this.about = el("p", { class: "fx-help" });
    this.fields = el("div", { class: "fx-export-fields" });
    this.label = el("p", { class: "fx-export-label" });
    this.command = el("code", { class: "fx-export-command", "data-testid": "fx-export-command", tabindex: "0" });
    this.copy = buttonOf(text.copy, () => this.copyCommand());
    this.state = el("div", { class: "fx-export-state", role: "status", "data-testid": "fx-export-state" });
    this.progress = new JobProgress(
      this.state,
      { label: text.progressLabel, stop: text.stop },
      () => this.id && this.request("export_stop", { id: this.id }),
    );
    this.make = buttonOf(text.make, () => this.start(), {
      class: "fx-button fx-main-button",
      "data-testid": "fx-export-make",
    });
    const close = buttonOf(text.close, () => this.node.close());
    this.body = el(
      "div",
      { hidden: true },
      this.fields,
      el(
        "div",
        { class: "fx-export-shell" },
        this.label,
        el("div", { class: "fx-export-line" }, this.command, this.copy),
      ),
      this.state,
    );
    this.waiting = el("div", {}, progressBox(text.loading));
    this.node = el(
      "dialog",
      {
        class: "fx-root fx-sheet fx-export",
        "aria-labelledby": title.id,
        "data-testid": "fx-export",
        onclick: (event) => event.target === this.node && this.node.close(),
        onclose: () => this.closed(),
      },
      title,
      this.about,
      this.waiting,
      this.body,
      el("div", { class: "fx-sheet-foot" }, this.make, close),
    );
    this.make.disabled = true;
  }

  async open() {
    document.body.append(this.node);
    this.node.showModal();
    const choices = await this.request("export_choices");
    if (!this.node.open) return;
    if (choices.error !== undefined) {
      this.waiting.replaceChildren(alertBox(choices.error));
      return;
    }
    this.choices = choices;
    this.about.textContent = text.of(choices.title, this.run);
    this.waiting.remove();
    this.body.hidden = false;
    this.make.disabled = false;
    this.options = {
      kind: "table",
      table: choices.tables[0].name,
      format: "csv",
      figure: choices.figures[0].name,
      figureFormat: choices.figure_formats[0],
      preset: choices.presets[0].name,
      reportFormat: choices.report_formats[0],
      maskLayer: String(this.layer ?? middleOf(choices.mask.layers).layer),
      maskHead: String(this.head ?? ""),
      maskFormat: choices.mask.formats[0],
      first: "0",
      last: String(choices.mask.tokens - 1),
      text: false,
      only: false,
    };
    this.draw();
  }

  closed() {
    clearTimeout(this.timer);
    clearTimeout(this.typing);
    if (this.job && isLive(this.job)) this.request("export_stop", { id: this.id });
    this.node.remove();
    if (opened === this) opened = null;
  }

  draw() {
    const { options } = this;
    const names = /** @type {Choice["kind"][]} */ (this.choices.kinds);
    const kinds = /** @type {Record<Choice["kind"], string>} */ (
      Object.fromEntries(names.map((kind) => [kind, text.kinds[kind]]))
    );
    const choice = choiceOf(text.kindLabel, kinds, options.kind, (kind) => this.change("kind", kind));
    const focused =
      this.node.contains(document.activeElement) &&
      /** @type {HTMLElement} */ (document.activeElement).getAttribute("data-field");
    this.problem = null;
    this.fields.replaceChildren(
      choice,
      el("p", { class: "fx-help" }, text.help[options.kind]),
      ...this[options.kind]().filter((node) => node !== null),
    );
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (choice.querySelectorAll("input")))
      input.dataset.field = `kind-${input.value}`;
    const again = focused && this.fields.querySelector(`[data-field="${focused}"]`);
    if (again) again.focus();
    this.showCommand();
  }

  /**
   * What is on the screen must not be older than what was chosen.
   * @param {keyof Choice} name
   * @param {string | boolean} value
   */
  change(name, value) {
    Object.assign(this.options, { [name]: value });
    this.state.replaceChildren();
    this.draw();
  }

  /**
   * @param {keyof Choice} name
   * @param {string} label
   * @param {[string, string][]} options
   */
  select(name, label, options) {
    /** @param {UiEvent<Event>} event */
    const changed = (event) => this.change(name, event.target.value);
    return el(
      "label",
      { class: "fx-entry" },
      el("span", {}, label),
      el(
        "select",
        { "data-field": name, onchange: changed },
        options.map(([value, words]) => el("option", { value, selected: value === this.options[name] }, words)),
      ),
    );
  }

  /**
   * @param {keyof Choice} name
   * @param {string} label
   */
  check(name, label) {
    return el(
      "label",
      { class: "fx-toggle" },
      el("input", {
        type: "checkbox",
        "data-field": name,
        checked: this.options[name],
        onchange: (event) => this.change(name, event.target.checked),
      }),
      label,
    );
  }

  /**
   * @param {keyof Choice} name
   * @param {string[]} names
   */
  formats(name, names) {
    return this.select(
      name,
      text.format,
      names.map((format) => [format, text.formats[format]]),
    );
  }

  table() {
    const { choices, options } = this;
    const table = itemNamed(choices.tables, options.table);
    const notes = [table.about, text.formatNotes[options.format]].filter(Boolean).join(" ");
    const only = table.layers && this.layer !== null ? this.check("only", text.layerOnly(this.layer)) : null;
    return [
      el(
        "div",
        { class: "fx-export-row" },
        this.select(
          "table",
          text.table,
          choices.tables.map(({ name }) => [name, name.replaceAll("_", " ")]),
        ),
        this.formats("format", choices.formats),
      ),
      only,
      el("p", { class: "fx-help" }, notes),
    ];
  }

  mask() {
    const { mask } = this.choices;
    const layers = mask.layers.map(({ layer }) => /** @type {[string, string]} */ ([String(layer), text.layer(layer)]));
    const { chosen, heads } = maskHeads(mask, this.options);
    this.options.maskHead = chosen;
    return [
      el(
        "div",
        { class: "fx-export-row" },
        this.select("maskLayer", text.maskLayer, layers),
        this.formats("maskFormat", mask.formats),
      ),
      heads.length > 0 ? this.select("maskHead", text.maskHead, heads) : null,
      endFields(this.options, (name, value) => this.typed(name, value)),
      (this.problem = el("div", { class: "fx-export-problem", "data-testid": "fx-export-problem" })),
      maskNotes(mask, this.options),
    ];
  }

  /**
   * Unlike `change` it keeps the fields, and waits for the next key.
   * @param {"first" | "last"} name
   * @param {string} value
   */
  typed(name, value) {
    this.options[name] = value;
    this.requestId += 1; // an answer about what was typed before comes too late
    this.state.replaceChildren();
    this.mark(null);
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.showCommand(), TYPING_MS);
  }

  figure() {
    const { choices, options } = this;
    const figure = itemNamed(choices.figures, options.figure);
    const row = [
      this.select(
        "figure",
        text.figure,
        choices.figures.map(({ name }) => [name, name.replaceAll("_", " ")]),
      ),
      this.formats("figureFormat", choices.figure_formats),
    ];
    const preset =
      options.figureFormat === "html"
        ? null
        : this.select(
            "preset",
            text.preset,
            choices.presets.map((size) => [size.name, text.presetOption(size)]),
          );
    const notes = [
      figure.about,
      figure.layers && this.layer !== null ? text.layerOf(this.layer) : null,
      preset === null ? text.presetFree : null,
    ]
      .filter(Boolean)
      .join(" ");
    return [el("div", { class: "fx-export-row" }, row), preset, el("p", { class: "fx-help" }, notes)];
  }

  bundle() {
    return [
      this.check("text", text.text),
      el("p", { class: "fx-help" }, this.options.text ? text.textHelp.with : text.textHelp.without),
    ];
  }

  report() {
    return [this.formats("reportFormat", this.choices.report_formats)];
  }

  get question() {
    const { options, layer } = this;
    if (options.kind === "table")
      return {
        kind: "table",
        name: options.table,
        format: options.format,
        layer: this.offersLayer("tables", options.table) && options.only ? layer : null,
      };
    if (options.kind === "figure")
      return {
        kind: "figure",
        name: options.figure,
        format: options.figureFormat,
        preset: options.preset,
        layer: this.offersLayer("figures", options.figure) ? layer : null,
      };
    if (options.kind === "mask") return maskQuestion(this.choices.mask, options);
    return options.kind === "report"
      ? { kind: "report", format: options.reportFormat }
      : { kind: "bundle", text: options.text };
  }

  /**
   * @param {"tables" | "figures"} list
   * @param {string} name
   */
  offersLayer(list, name) {
    return this.layer !== null && itemNamed(this.choices[list], name).layers;
  }

  async showCommand() {
    const requestId = (this.requestId += 1);
    const alike = this.options.kind === "figure" && ["pdf", "svg"].includes(this.options.figureFormat);
    this.label.textContent = alike ? text.commandAlike : text.command;
    const answer = await this.request("export_command", this.question);
    if (requestId !== this.requestId) return;
    this.command.textContent = answer.error === undefined ? answer.command : "";
    this.copy.disabled = answer.error !== undefined;
    this.mark(answer.error ?? null);
  }

  /**
   * Show what is wrong with the choice, or that nothing is.
   * @param {string | null} message
   */
  mark(message) {
    if (message !== null) (this.problem ?? this.state).replaceChildren(alertBox(message));
    else this.problem?.replaceChildren();
    markEnds(this.fields, message !== null, this.choices.mask.tokens);
  }

  copyCommand() {
    return copyFrom(this.copy, this.command.textContent, text);
  }

  start() {
    if (this.problem?.hasChildNodes()) {
      /** @type {HTMLInputElement} */ (this.fields.querySelector("input[type=text]")).focus();
      return;
    }
    this.make.disabled = true;
    this.showRunning({ stage: text.making, fraction: 0 });
    this.follow("export_start", this.question);
  }

  /**
   * @param {"export_start" | "export_state"} what
   * @param {Details} details
   */
  async follow(what, details) {
    const answer = await this.request(what, details);
    if (!this.node.open) {
      if (answer.error === undefined) this.request("export_stop", { id: answer.id });
      return;
    }
    if (answer.error !== undefined) this.end(alertBox(answer.error));
    else this.take(answer);
  }

  /** @param {ExportPayload} given */
  take({ id, job, file }) {
    Object.assign(this, { id, job });
    if (file) this.showFile(file);
    else if (job.state === "failed") this.end(alertBox(job.message));
    else if (job.state === "stopped") this.end(el("p", {}, text.stopped));
    else {
      this.showRunning(job);
      this.timer = setTimeout(() => this.follow("export_state", { id }), POLL_MS);
    }
  }

  /** @param {Node} node */
  end(node) {
    this.make.disabled = false;
    this.state.replaceChildren(node);
  }

  /** @param {{ stage: string, fraction: number }} given */
  showRunning({ stage, fraction }) {
    this.progress.show(stage, fraction);
  }

  /** @param {ExportFilePayload} file */
  showFile(file) {
    const link = el(
      "a",
      { class: "fx-button fx-link-button", href: file.address, download: file.name, "data-testid": "fx-export-link" },
      text.download,
    );
    this.end(
      el(
        "div",
        { class: "fx-export-ready" },
        el("p", {}, text.ready(file.name, text.size(file.bytes))),
        link,
        el("p", { class: "fx-help" }, text.kept),
      ),
    );
    link.click();
    link.focus();
  }
}

/** @param {ExportSource} from */
export const openExport = (from) => {
  if (opened !== null) return; // pressed twice
  opened = new Dialog(from);
  opened.open();
};
