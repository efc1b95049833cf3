// @ts-check
// The search field and filters of the Runs tab; filtering happens in the browser.
import { buttonOf, el } from "../core/dom.js";
import { runs as text } from "../strings/runs.js";
/** @import { RunCardPayload } from "../core/payloads.js" */

export class Filters {
  /** @param {() => unknown} changed */
  constructor(changed) {
    this.changed = changed;
    /** The fields by name. @type {Record<string, HTMLSelectElement>} */
    this.chosen = {};
    this.words = el("input", {
      type: "search",
      class: "fx-input",
      placeholder: text.searchHint,
      "data-testid": "fx-runs-search",
      oninput: changed,
    });
    this.selects = Object.entries(text.filters).map(([name, label]) => {
      const select = el("select", { onchange: changed, "data-testid": `fx-runs-${name}` });
      this.chosen[name] = select;
      return el("label", { class: "fx-entry" }, el("span", {}, label), select);
    });
    this.clear = buttonOf(text.clearFilters, () => this.reset());
    this.node = el(
      "div",
      { class: "fx-runs-filters" },
      el("label", { class: "fx-entry fx-entry-wide" }, el("span", {}, text.search), this.words),
      this.selects,
      this.clear,
    );
  }

  reset() {
    this.words.value = "";
    for (const select of Object.values(this.chosen)) select.value = "";
    this.changed();
  }

  /** @param {RunCardPayload[]} runs */
  options(runs) {
    /** @type {Record<string, string[]>} */
    const values = {
      model: runs.map((run) => run.model_id),
      centroids: runs.map((run) => run.centroids_name),
      setting: runs.map((run) => text.setting(run.config)),
      tag: runs.flatMap((run) => run.tags),
    };
    for (const [name, select] of Object.entries(this.chosen)) {
      const previous = select.value;
      const unique = [...new Set(values[name])].sort();
      select.replaceChildren(
        el("option", { value: "" }, text.any),
        ...unique.map((value) => el("option", { value }, value)),
      );
      select.value = unique.includes(previous) ? previous : "";
      select.disabled = unique.length === 0;
    }
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  choose(name, value) {
    this.chosen[name].value = value;
    this.changed();
  }

  /** @param {RunCardPayload} run */
  matches(run) {
    const { model, centroids, setting, tag } = this.chosen;
    if (model.value && run.model_id !== model.value) return false;
    if (centroids.value && run.centroids_name !== centroids.value) return false;
    if (setting.value && text.setting(run.config) !== setting.value) return false;
    if (tag.value && !run.tags.includes(tag.value)) return false;
    const searched = [run.name, run.title, run.note, run.run_id, ...run.tags].join("\n").toLowerCase();
    return this.words.value
      .toLowerCase()
      .split(/\s+/)
      .every((word) => searched.includes(word));
  }

  get active() {
    return this.words.value !== "" || Object.values(this.chosen).some((select) => select.value !== "");
  }
}
