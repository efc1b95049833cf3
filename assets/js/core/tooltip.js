// @ts-check
// The tooltip, and the question marks that open it with an explanation.
import { buttonOf, el, newId } from "./dom.js";
import { common } from "../strings/common.js";
/** @import { Child, Target, UiEvent } from "./types.js" */

const EDGE = 8;

export class Tooltip {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.id = newId("tooltip");
    this.node = el("div", {
      id: this.id,
      class: "fx-tooltip",
      role: "tooltip",
      hidden: true,
      "data-testid": "fx-tooltip",
    });
  }

  /**
   * @param {Child | Child[]} content
   * @param {Target} rect
   */
  show(content, rect) {
    this.node.replaceChildren(.../** @type {(Node | string)[]} */ ([content].flat()));
    this.node.hidden = false;
    this.place(rect);
  }

  hide() {
    this.node.hidden = true;
  }

  /** @param {Target} rect */
  place(rect) {
    const home = this.root.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const centred = rect.left + rect.width / 2 - width / 2;
    const left = Math.max(EDGE, Math.min(document.documentElement.clientWidth - width - EDGE, centred));
    const below = rect.bottom + EDGE;
    const above = rect.top - height - EDGE;
    const top = below + height > window.innerHeight && above > 0 ? above : below;
    this.node.style.left = `${left - home.left}px`;
    this.node.style.top = `${top - home.top}px`;
  }
}

/**
 * A question mark that explains a term on hover, focus and tap.
 * @param {Tooltip} tooltip
 * @param {string} subject
 * @param {Child | Child[]} text
 */
export const hintButton = (tooltip, subject, text) => {
  /** @param {UiEvent<Event>} event */
  const show = (event) =>
    tooltip.show(el("p", { class: "fx-tooltip-text" }, text), event.currentTarget.getBoundingClientRect());
  return buttonOf("?", show, {
    class: "fx-hint",
    "aria-label": common.hintLabel(subject),
    "aria-describedby": tooltip.id,
    onmouseenter: show,
    onfocus: show,
    onmouseleave: () => tooltip.hide(),
    onblur: () => tooltip.hide(),
  });
};

/** @param {Child} title */
export const tooltipHead = (title) => el("div", { class: "fx-tooltip-head" }, el("strong", {}, title));

/**
 * A line of a tooltip: what a number is, and the number.
 * @param {Child | Child[]} label
 * @param {Child} value
 */
export const tooltipRow = (label, value) =>
  el("div", { class: "fx-tooltip-row" }, el("span", {}, label), el("span", { class: "fx-number" }, value));
