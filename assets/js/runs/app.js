// @ts-check
// The Runs tab: find, name, tag, delete, reopen and compare stored runs.
import { buttonOf, el, emptyState } from "../core/dom.js";
import { format } from "../core/format.js";
import { callServer } from "../core/server.js";
import { Tooltip } from "../core/tooltip.js";
import { alertBox, progressBox } from "../core/widgets.js";
import { compareAddress, nameOf, runAddress, runNumbers, runWords } from "./card.js";
import { Filters } from "./filters.js";
import { labelForm } from "./label-form.js";
import { openExport } from "../shell/export.js";
import { exporting as exportingText } from "../strings/export.js";
import { runs as text } from "../strings/runs.js";
/** @import { RunCardPayload } from "../core/payloads.js" */
/** @import { RunLabels } from "./label-form.js" */
/** @import { Child, RunsServer } from "../core/types.js" */

const SHOWN_AT_FIRST = 50;

export class App {
  /** @type {HTMLElement} */
  root;
  /** @type {RunsServer} */
  server;
  /** @type {RunCardPayload[]} */
  runs;
  /** @type {RunCardPayload[]} */
  deleted;
  /** The ids of the runs to compare, at most two. @type {string[]} */
  picked;
  /** @type {number} */
  limit;
  /** @type {string | null} */
  editing;
  /** @type {number} */
  keepDays;
  requestId = 0;
  /** The form that is open, by run. @type {{ id: string, node: HTMLElement } | null} */
  openForm = null;

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
    const requestId = (this.requestId += 1);
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
      runWords(run, this.tooltip, (tag) => this.filters.choose("tag", tag)),
      runNumbers(run, this.tooltip),
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
      el(
        "a",
        { class: "fx-button fx-link-button", href: runAddress(run), "aria-label": text.openLabel(name) },
        text.open,
      ),
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
      head: null,
    });
  }

  /** @param {RunCardPayload} run */
  form(run) {
    return labelForm(
      run,
      (changes) => this.save(run, changes),
      () => this.edit(null, run.run_id),
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
    if (id === null) this.focusEdit(focusRun);
    else this.itemNode(id)?.querySelector("input")?.focus();
  }

  /** @param {string | null} id */
  focusEdit(id) {
    const button = this.itemNode(id)?.querySelector("[data-testid=fx-run-edit]");
    if (button) button.focus();
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
   * @param {RunLabels} changes
   */
  async save(run, changes) {
    const answer = await callServer(() => this.server.label({ run: run.run_id, ...changes }));
    if (answer.error !== undefined) return this.setStatus(alertBox(answer.error));
    const isOpen = this.editing === run.run_id; // else another run's form was opened meanwhile
    if (isOpen) {
      this.editing = null;
      this.openForm = null;
    }
    await this.load();
    if (isOpen) this.edit(null, run.run_id);
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
    this.focusEdit(run.run_id);
  }

  /** @param {string} id */
  pick(id) {
    this.picked = this.picked.includes(id)
      ? this.picked.filter((other) => other !== id)
      : [...this.picked.slice(-1), id];
    for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (this.list.querySelectorAll(".fx-runs-pick input")))
      box.checked = this.picked.includes(String(box.closest("li")?.dataset.run));
    this.drawCompare();
  }

  drawCompare() {
    const runs = this.picked.flatMap((id) => this.runs.filter((run) => run.run_id === id));
    this.compare.hidden = runs.length === 0;
    if (runs.length === 0) return;
    const [first, second] = runs;
    const alike = second && nameOf(first) === nameOf(second);
    /** @param {RunCardPayload} run */
    const called = (run) => (alike ? text.withId(nameOf(run), run.run_id) : nameOf(run));
    const words = second ? text.compareTwo(called(first), called(second)) : text.compareOne(called(first));
    const link = { class: "fx-button fx-link-button fx-primary", href: second ? compareAddress(first, second) : null };
    const go = second ? [el("a", link, text.compareGo)] : [];
    const none = buttonOf(text.compareClear, () => this.pickNone());
    this.compare.replaceChildren(el("p", {}, words), ...go, none);
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
        el(
          "span",
          {},
          nameOf(run),
          el("small", { class: "fx-muted" }, text.deletedAt(format.date(String(run.deleted_at)))),
        ),
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
    return { load: () => app.load() };
  },
};
