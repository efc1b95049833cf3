// @ts-check
// Tabs with their panels and keyboard.
import { el, newId } from "./dom.js";
/** @import { UiEvent } from "./types.js" */

export class Tabs {
  /**
   * @param {Record<string, string>} names
   * @param {string} label
   * @param {(name: string) => unknown} selected
   */
  constructor(names, label, selected) {
    this.selected = selected;
    /** @type {Record<string, HTMLButtonElement>} */
    this.tabs = {};
    /** @type {Record<string, HTMLElement>} */
    this.panels = {};
    for (const [name, text] of Object.entries(names)) this.add(name, text);
    this.order = Object.keys(names);
    this.list = el(
      "div",
      { class: "fx-tabs", role: "tablist", "aria-label": label, onkeydown: (event) => this.key(event) },
      Object.values(this.tabs),
    );
  }

  /**
   * @param {string} name
   * @param {string} text
   */
  add(name, text) {
    const id = newId(`tab-${name}`);
    const attributes = {
      type: "button",
      id,
      class: "fx-tab",
      role: "tab",
      "aria-controls": `${id}-panel`,
      "data-view": name,
    };
    this.tabs[name] = el("button", { ...attributes, onclick: () => this.selected(name) }, text);
    this.panels[name] = el("div", {
      id: `${id}-panel`,
      class: "fx-panel",
      role: "tabpanel",
      "aria-labelledby": id,
      "data-view": name,
      hidden: true,
    });
  }

  /** @param {string} name */
  choose(name) {
    for (const other of this.order) {
      const active = other === name;
      this.tabs[other].setAttribute("aria-selected", String(active));
      this.tabs[other].tabIndex = active ? 0 : -1;
      this.panels[other].hidden = !active;
    }
  }

  /** @param {UiEvent<KeyboardEvent>} event */
  key(event) {
    const at = this.order.indexOf(event.target.dataset.view);
    const last = this.order.length - 1;
    /** @type {Record<string, number>} */
    const targets = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last };
    if (!(event.key in targets)) return;
    event.preventDefault();
    const name = this.order[targets[event.key]];
    this.selected(name);
    this.tabs[name].focus();
  }
}
