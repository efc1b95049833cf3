// @ts-check
// The Centroids tab: files as cards, the contents of one file, and the differences between two.
import { Balance } from "./balance.js";
import { Budgets } from "./budgets.js";
import { Changes } from "./changes.js";
import { facts, heldOut, trainedOn } from "./facts.js";
import { fileActions } from "./file-actions.js";
import { Similarity } from "./similarity.js";
import { el, setText } from "../core/dom.js";
import { sentence } from "../core/format.js";
import { growthWords } from "../core/heads.js";
import { resizePlots } from "../core/plot.js";
import { callServer } from "../core/server.js";
import { budgetWords } from "../core/setting-words.js";
import { installShades } from "../core/shades.js";
import { watchTheme } from "../core/theme.js";
import { Tooltip, hintButton } from "../core/tooltip.js";
import { alertBox, progressBox } from "../core/widgets.js";
import { centroids as text } from "../strings/centroids.js";
/** @import { CentroidCardPayload, CentroidDetailPayload } from "../core/payloads.js" */
/** @import { UsedBudgetPayload } from "../core/payloads.js" */
/** @import { CentroidsServer } from "../core/types.js" */

export class App {
  /** @type {HTMLElement} */
  root;
  /** @type {CentroidsServer} */
  server;
  /** @type {CentroidCardPayload[]} */
  files;
  /** @type {boolean} */
  fixed;
  /** @type {number} */
  requestId;
  /** Of the list: an older one comes too late. */
  listId = 0;
  /** @type {CentroidDetailPayload} */
  shown;

  /** @type {(used: UsedBudgetPayload) => unknown} */
  choose;
  /** @type {() => unknown} */
  listChanged;

  /**
   * @param {HTMLElement} root
   * @param {CentroidsServer} server
   * @param {(used: UsedBudgetPayload) => unknown} choose
   * @param {() => unknown} listChanged
   */
  constructor(root, server, choose, listChanged) {
    Object.assign(this, { root, server, choose, listChanged, files: [], requestId: 0 });
    this.fixed = "fixed" in root.dataset; // whoever reads this page may change no file
    installShades();
    this.tooltip = new Tooltip(root);
    this.message = el("div", { class: "fx-message" }, progressBox(text.loading));
    this.list = el("ul", { class: "fx-files", "aria-label": text.listLabel });
    this.inside = el("div", { class: "fx-file-inside", "aria-live": "polite", hidden: true });
    this.balance = new Balance(this);
    this.similarity = new Similarity(this);
    this.budgets = new Budgets(this);
    this.changes = new Changes(this);
    this.content = el("div", { hidden: true }, this.list, this.inside, this.changes.node);
    root.replaceChildren(this.message, this.content, this.tooltip.node);
    root.addEventListener("keydown", (event) => event.key === "Escape" && this.tooltip.hide());
    this.themeObserver = watchTheme(root, () => this.redraw());
    this.sizeObserver = new ResizeObserver(() => root.offsetParent !== null && resizePlots(root));
    this.sizeObserver.observe(root);
    this.load();
  }

  async load() {
    const listId = (this.listId += 1);
    const answer = await callServer(() => this.server.load());
    if (listId !== this.listId) return;
    this.message.hidden = answer.error === undefined;
    if (answer.error !== undefined) {
      this.message.replaceChildren(alertBox(sentence(answer.error), () => this.load()));
      return;
    }
    this.show(answer.files);
  }

  /**
   * The list is read again whenever its tab is opened: what somebody has begun on a card stays while nothing changed.
   * @param {CentroidCardPayload[]} files
   */
  show(files) {
    if (!this.content.hidden && JSON.stringify(files) === JSON.stringify(this.files)) return;
    this.files = files;
    this.content.hidden = false;
    this.list.replaceChildren(...files.map((file) => this.card(file)));
    this.changes.update(files);
    const open = files.find((file) => file.sha256 === this.shown?.sha256);
    const title = this.inside.querySelector("h2");
    if (open && title) setText(title, text.inside(open.name)); // it may have been renamed
  }

  /**
   * After a file was renamed or removed: other fields of the page list files too.
   * @param {CentroidCardPayload[]} files
   */
  changed(files) {
    this.listId += 1;
    if (this.shown && !files.some((file) => file.sha256 === this.shown.sha256)) this.inside.hidden = true;
    this.show(files);
    this.listChanged();
  }

  /**
   * Choose a file with its own settings on the Explore page.
   * @param {CentroidCardPayload} file
   */
  use({ sha256, name, config: { top_k, window, num_sinks } }) {
    this.choose({ sha256, name, top_k, window, num_sinks });
  }

  /** @param {CentroidCardPayload} file */
  card(file) {
    const head = [
      el("h3", { class: "fx-subtitle" }, file.name),
      el(
        "ul",
        { class: "fx-facts" },
        facts(file).map((fact) => el("li", {}, fact)),
      ),
    ];
    const budget = budgetWords(file.config.budget);
    const words = [text.setting(file.config), growthWords(file.config), budget ? text.budget(budget) : null];
    const setting = el(
      "p",
      { class: "fx-settings" },
      words.filter(Boolean).join(", "),
      hintButton(this.tooltip, text.settingSubject, text.settingHint + (budget ? text.settingHintBudget : "")),
    );
    const foot = el(
      "div",
      { class: "fx-file-foot" },
      fileActions(this, file),
      el("code", { class: "fx-muted" }, file.sha256.slice(0, 16)),
    );
    if (file.problem) return el("li", { class: "fx-file-card" }, head, alertBox(sentence(file.problem)), foot);
    return el(
      "li",
      { class: "fx-file-card", "data-file": file.sha256 },
      head,
      setting,
      el(
        "dl",
        {},
        el("dt", {}, text.trainedOn),
        el("dd", {}, trainedOn(file.training ?? {})),
        el("dt", {}, text.heldOut, hintButton(this.tooltip, text.heldOut, text.heldOutHint)),
        heldOut(file).map((line) => el("dd", {}, line)),
      ),
      foot,
    );
  }

  /** @param {CentroidCardPayload} file */
  async inspect(file) {
    const requestId = (this.requestId += 1);
    this.inside.hidden = false;
    this.inside.replaceChildren(progressBox(text.loadingFile(file.name)));
    const answer = await callServer(() => this.server.detail({ file: file.sha256 }));
    if (requestId !== this.requestId) return;
    if (answer.error !== undefined) {
      this.inside.replaceChildren(alertBox(sentence(answer.error), () => this.inspect(file)));
      return;
    }
    this.shown = answer;
    this.inside.replaceChildren(
      el("h2", { class: "fx-title", tabindex: "-1" }, text.inside(file.name)),
      el("div", { class: "fx-file-charts" }, this.balance.node, this.similarity.node, this.balance.table),
    );
    this.inside.lastChild?.before(this.budgets.node);
    this.budgets.update(file.sha256, answer.budgets);
    this.balance.update(answer.runs);
    this.similarity.update(answer.layers);
    /** @type {HTMLElement} */ (this.inside.firstChild).focus({ preventScroll: true });
    this.inside.scrollIntoView({
      block: "start",
      behavior: window.matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
    });
  }

  redraw() {
    if (this.root.offsetParent === null) return;
    if (this.shown) {
      if (this.shown.runs.length > 0) this.balance.draw();
      this.similarity.draw();
      this.budgets.draw();
    }
    this.changes.draw();
  }
}

/** The Centroids tab. */
export const FocusFiles = {
  /**
   * @param {HTMLElement} root
   * @param {CentroidsServer} server
   * @param {(used: UsedBudgetPayload) => unknown} choose
   * @param {() => unknown} listChanged
   */
  create(root, server, choose, listChanged) {
    const app = new App(root, server, choose, listChanged);
    return { load: () => app.load() };
  },
};
