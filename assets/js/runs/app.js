// @ts-check
// The Runs tab: find, name, tag, delete, reopen and compare stored runs.
import { buttonOf, el, emptyState } from "../core/dom.js";
import { format } from "../core/format.js";
import { callServer } from "../core/server.js";
import { Tooltip, hintButton } from "../core/tooltip.js";
import { alertBox, progressBox } from "../core/widgets.js";
import { Filters } from "./filters.js";
import { openExport } from "../shell/export.js";
import { exporting as exportingText } from "../strings/export.js";
import { runs as text } from "../strings/runs.js";
/** @import { RunCardPayload } from "../core/payloads.js" */
/** @import { Child, RunsServer } from "../core/types.js" */

const SHOWN_AT_FIRST = 50;

const apps = new WeakMap();

/** @param {{ name: string, title: string }} run */
const nameOf = (run) => run.name || run.title;

/** @param {{ run_id: string }} run */
const address = (run) => `?run=${encodeURIComponent(run.run_id)}`;

/** @param {string} value */
const splitTags = (value) =>
  value
    .split(",")
    .map((tag) => tag.trim())
    .filter(Boolean);

export class App {
  /** @type {HTMLElement} */
  root;
  /** @type {RunsServer} */
  server;
  /** @type {any} */
  runs;
  /** @type {any} */
  deleted;
  /** @type {any} */
  picked;
  /** @type {number} */
  limit;
  /** @type {string | null} */
  editing;
  /** @type {any} */
  keepDays;
  /** @type {any} */
  requestId;
  /** @type {any} */
  openForm;

  /**
   * @param {HTMLElement} root
   * @param {RunsServer} server
   */
  constructor(root, server) {
    Object.assign(this, {
      root,
      server,
      runs: [],
      deleted: [],
      picked: [],
      limit: SHOWN_AT_FIRST,
      editing: null,
      keepDays: 0,
    });
    this.tooltip = new Tooltip(root);
    this.message = el("div", { class: "fx-message" }, progressBox(text.loading));
    this.status = el("div", { class: "fx-runs-status", role: "status", "data-testid": "fx-runs-status" });
    this.filters = new Filters(() => this.drawList());
    this.count = el("p", { class: "fx-runs-count fx-muted", role: "status" });
    this.compare = el("div", {
      class: "fx-runs-compare",
      role: "status",
      hidden: true,
      "data-testid": "fx-runs-compare",
    });
    this.list = el("ul", { class: "fx-runs-list", "aria-label": text.listLabel, "data-testid": "fx-runs-list" });
    this.more = buttonOf(null, () => this.showMore(), { hidden: true });
    this.deletedList = el("details", {
      class: "fx-details fx-runs-bin",
      hidden: true,
      "data-testid": "fx-runs-deleted",
    });
    this.content = el(
      "div",
      { class: "fx-runs", hidden: true },
      this.filters.node,
      this.count,
      this.compare,
      this.list,
      this.more,
      this.deletedList,
    );
    root.replaceChildren(this.message, this.status, this.content, this.tooltip.node);
    root.addEventListener("keydown", (event) => event.key === "Escape" && this.tooltip.hide());
    this.load();
  }

  async load() {
    const requestId = (this.requestId = (this.requestId || 0) + 1);
    const answer = await callServer(() => this.server.load());
    if (requestId !== this.requestId) return; // a newer answer is on its way, or already here
    if (answer.error !== undefined) {
      this.message.replaceChildren(alertBox(answer.error, () => this.load()));
      this.message.hidden = false;
      return;
    }
    this.runs = answer.runs.filter((run) => run.deleted_at === null);
    this.deleted = answer.runs.filter((run) => run.deleted_at !== null);
    this.keepDays = answer.keep_days;
    this.picked = this.picked.filter((id) => this.runs.some((run) => run.run_id === id));
    this.filters.options(this.runs);
    this.draw();
  }

  draw() {
    const none = this.runs.length === 0;
    this.message.hidden = !none;
    this.message.replaceChildren(none ? emptyState(text.empty.title, text.empty.body) : "");
    this.content.hidden = none && this.deleted.length === 0;
    this.filters.node.hidden = this.count.hidden = none;
    this.drawList();
    this.drawCompare();
    this.drawBin();
  }

  drawList() {
    const matches = this.runs.filter((run) => this.filters.matches(run));
    const shown = matches.slice(0, this.limit);
    this.filters.clear.hidden = !this.filters.active;
    this.count.textContent = text.count(format.count(matches.length), format.count(this.runs.length));
    this.list.replaceChildren(...shown.map((run) => this.item(run)));
    if (matches.length === 0 && this.runs.length > 0)
      this.list.replaceChildren(el("li", { class: "fx-runs-none fx-muted" }, text.noneMatch));
    this.more.hidden = matches.length <= shown.length;
    this.more.textContent = text.more(format.count(matches.length - shown.length));
  }

  showMore() {
    this.limit += SHOWN_AT_FIRST;
    this.drawList();
  }

  /** @param {RunCardPayload} run */
  item(run) {
    if (this.editing === run.run_id)
      return el("li", { class: "fx-runs-item", "data-run": run.run_id }, this.keptForm(run));
    return el(
      "li",
      { class: "fx-runs-item", "data-run": run.run_id },
      el(
        "div",
        { class: "fx-runs-words" },
        this.heading(run),
        this.facts(run),
        run.note ? el("p", { class: "fx-runs-note" }, run.note) : null,
        this.tags(run),
      ),
      this.numbers(run),
      this.actions(run),
    );
  }

  /**
   * What somebody is typing outlives a list drawn anew.
   * @param {RunCardPayload} run
   */
  keptForm(run) {
    if (!this.openForm || this.openForm.id !== run.run_id) this.openForm = { id: run.run_id, node: this.form(run) };
    return this.openForm.node;
  }

  /** @param {RunCardPayload} run */
  heading(run) {
    const link = el("a", { href: address(run), class: "fx-runs-name" }, nameOf(run));
    return el("h3", { class: "fx-subtitle" }, link, run.name ? el("small", { class: "fx-muted" }, run.title) : null);
  }

  /** @param {RunCardPayload} run */
  facts(run) {
    const parts = [
      format.date(run.created_at),
      text.tokens(format.count(run.num_tokens)),
      run.model_id,
      run.centroids_name,
      text.setting(run.config),
    ];
    const items = parts.map((part, i) =>
      el(
        "li",
        {},
        part,
        i === parts.length - 1 ? hintButton(this.tooltip, text.settingSubject, text.settingHint) : null,
      ),
    );
    return el("ul", { class: "fx-facts" }, items, el("li", { class: "fx-runs-id" }, run.run_id));
  }

  /** @param {RunCardPayload} run */
  tags(run) {
    if (run.tags.length === 0) return null;
    /** @param {string} tag */
    const filterBy = (tag) => () => this.filters.choose("tag", tag);
    return el(
      "div",
      { class: "fx-runs-tags" },
      run.tags.map((tag) => buttonOf(tag, filterBy(tag), { class: "fx-tag", "aria-label": text.tagLabel(tag) })),
    );
  }

  /** @param {RunCardPayload} run */
  numbers(run) {
    /** @param {string} label @param {string} hint @param {string} value */
    const line = (label, hint, value) =>
      el("div", {}, el("dt", {}, label, hintButton(this.tooltip, label, hint)), el("dd", {}, value));
    const both = `${format.perplexity(run.perplexity_full)}${text.arrow}${format.perplexity(run.perplexity_focus)}`;
    return el(
      "dl",
      { class: "fx-runs-numbers" },
      line(text.perplexity, text.perplexityHint, both),
      line(text.pairs, text.pairsHint, format.percent(run.retained_pairs)),
      line(text.largest, text.largestHint, format.percent(run.dominance)),
    );
  }

  /** @param {RunCardPayload} run */
  actions(run) {
    const name = nameOf(run);
    const box = el("input", {
      type: "checkbox",
      checked: this.picked.includes(run.run_id),
      "aria-label": text.compareLabel(name),
      onchange: () => this.pick(run.run_id),
    });
    /** @param {string} label @param {string} spoken @param {() => unknown} onclick @param {string} test */
    const button = (label, spoken, onclick, test) =>
      buttonOf(label, onclick, { "aria-label": spoken, "data-testid": `fx-run-${test}` });
    return el(
      "div",
      { class: "fx-runs-actions" },
      el("a", { class: "fx-button fx-link-button", href: address(run), "aria-label": text.openLabel(name) }, text.open),
      button(exportingText.open, exportingText.openLabel(name), () => this.export(run.run_id), "export"),
      button(text.edit, text.editLabel(name), () => this.edit(run.run_id), "edit"),
      button(text.remove, text.removeLabel(name), () => this.remove(run), "delete"),
      el("label", { class: "fx-toggle fx-runs-pick" }, box, text.compare),
    );
  }

  /** @param {string} id */
  export(id) {
    openExport({
      request: (what, details = {}) => callServer(() => this.server.ask({ what, run: id, ...details })),
      run: id,
      layer: null,
    });
  }

  /** @param {RunCardPayload} run */
  form(run) {
    const name = el("input", {
      type: "text",
      class: "fx-input",
      value: run.name,
      maxlength: 120,
      placeholder: run.title,
    });
    const tags = el("input", { type: "text", class: "fx-input", value: run.tags.join(", ") });
    const note = el("textarea", { class: "fx-input", rows: 3, maxlength: 4000 });
    note.value = run.note;
    /** @param {string} label @param {HTMLElement} input @param {boolean} wide */
    const field = (label, input, wide) =>
      el("label", { class: `fx-entry ${wide ? "fx-entry-wide" : ""}`.trim() }, el("span", {}, label), input);
    /** @param {Event} event */
    const save = (event) => {
      event.preventDefault();
      this.save(run, { name: name.value, note: note.value, tags: splitTags(tags.value) });
    };
    return el(
      "form",
      {
        class: "fx-runs-form",
        onsubmit: save,
        onkeydown: (event) => event.key === "Escape" && this.edit(null, run.run_id),
      },
      field(text.name, name, true),
      field(text.tags, tags, true),
      field(text.note, note, true),
      el(
        "div",
        { class: "fx-runs-actions" },
        el("button", { type: "submit", class: "fx-button fx-primary" }, text.save),
        buttonOf(text.cancel, () => this.edit(null, run.run_id)),
      ),
    );
  }

  /**
   * @param {string | null} id
   * @param {string | null} [focusRun]
   */
  edit(id, focusRun = null) {
    this.editing = id;
    this.openForm = null;
    this.drawList();
    const target = id
      ? /** @type {HTMLElement} */ (this.itemNode(id)).querySelector("input")
      : this.itemNode(focusRun) &&
        /** @type {HTMLElement} */ (this.itemNode(focusRun)).querySelector("[data-testid=fx-run-edit]");
    if (target) target.focus();
  }

  /**
   * @param {string | null} id
   * @returns {HTMLElement | null}
   */
  itemNode(id) {
    return this.list.querySelector(`[data-run="${CSS.escape(/** @type {string} */ (id))}"]`);
  }

  /**
   * @param {RunCardPayload} run
   * @param {{ name: string, note: string, tags: string[] }} changes
   */
  async save(run, changes) {
    const answer = await callServer(() => this.server.label({ run: run.run_id, ...changes }));
    if (answer.error !== undefined) return this.setStatus(alertBox(answer.error));
    this.editing = null;
    this.openForm = null;
    await this.load();
    this.edit(null, run.run_id);
    return this.setStatus(text.saved(nameOf({ ...run, ...answer })));
  }

  /**
   * @param {string | Node} content
   * @param {...Child} actions
   */
  setStatus(content, ...actions) {
    this.status.replaceChildren(
      typeof content === "string" ? el("div", { class: "fx-runs-message" }, el("p", {}, content), actions) : content,
    );
  }

  /** @param {RunCardPayload} run */
  async remove(run) {
    const answer = await callServer(() => this.server.remove({ run: run.run_id }));
    if (answer.error !== undefined) return this.setStatus(alertBox(answer.error));
    const undo = buttonOf(text.undo, () => this.restore(run), { "data-testid": "fx-run-undo" });
    this.setStatus(text.removed(nameOf(run), this.keepDays), undo);
    undo.focus();
    return this.load();
  }

  /** @param {RunCardPayload} run */
  async restore(run) {
    const answer = await callServer(() => this.server.restore({ run: run.run_id }));
    this.setStatus(answer.error === undefined ? text.restored(nameOf(run)) : alertBox(answer.error));
    await this.load();
    this.edit(null, run.run_id);
  }

  /** @param {string} id */
  pick(id) {
    this.picked = this.picked.includes(id)
      ? this.picked.filter((other) => other !== id)
      : [...this.picked.slice(-1), id];
    for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (this.list.querySelectorAll(".fx-runs-pick input")))
      box.checked = this.picked.includes(/** @type {HTMLLIElement} */ (box.closest("li")).dataset.run);
    this.drawCompare();
  }

  drawCompare() {
    const runs = this.picked.map((id) => this.runs.find((run) => run.run_id === id));
    this.compare.hidden = runs.length === 0;
    if (runs.length === 0) return;
    const words =
      runs.length === 1
        ? text.compareOne(nameOf(runs[0]))
        : text.compareTwo(.../** @type {[any, any]} */ (runs.map(nameOf)));
    const go =
      runs.length === 2
        ? el(
            "a",
            {
              class: "fx-button fx-link-button fx-primary",
              href: `${address(runs[0])}&view=compare&part=runs&with=${encodeURIComponent(runs[1].run_id)}`,
            },
            text.compareGo,
          )
        : null;
    const none = buttonOf(text.compareClear, () => this.pickNone());
    this.compare.replaceChildren(el("p", {}, words), .../** @type {(string | Node)[]} */ ([go, none].filter(Boolean)));
  }

  pickNone() {
    this.picked = [];
    this.drawList();
    this.drawCompare();
  }

  drawBin() {
    this.deletedList.hidden = this.deleted.length === 0;
    const rows = this.deleted.map((run) =>
      el(
        "li",
        {},
        el("span", {}, nameOf(run), el("small", { class: "fx-muted" }, text.deletedAt(format.date(run.deleted_at)))),
        buttonOf(text.restore, () => this.restore(run), { "aria-label": text.restoreLabel(nameOf(run)) }),
      ),
    );
    this.deletedList.replaceChildren(
      el("summary", {}, text.deletedTitle(format.count(this.deleted.length))),
      el("p", { class: "fx-help" }, text.deletedHelp(this.keepDays)),
      el("ul", { class: "fx-runs-deleted" }, rows),
    );
  }
}

/** The Runs tab. */
export const FocusRuns = {
  /**
   * @param {HTMLElement} root
   * @param {RunsServer} server
   */
  create(root, server) {
    const app = new App(root, server);
    apps.set(root, app);
    return { load: () => app.load() };
  },
};
