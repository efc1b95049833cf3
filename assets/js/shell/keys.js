// @ts-check
// Keyboard shortcuts of the whole page, and the help sheet that lists them and says what words mean. They press the
// page's own buttons.
import { buttonOf, el, newId } from "../core/dom.js";
import { startTour } from "./tour.js";
import { keys as text } from "../strings/keys.js";
/** @import { UiEvent } from "../core/types.js" */

const TYPING =
  "input:not([type=checkbox], [type=radio], [type=range], [type=button]), textarea, select, " +
  "[contenteditable='true'], [contenteditable='']";

const MASTHEAD_TRIES = 600;
/** @type {HTMLDialogElement | null} */
let sheet = null;

const explorer = () =>
  document.querySelector("#fe-view .fx-root") || document.querySelector(".fx-root:has([data-testid=fx-header])");

/** @param {HTMLElement | null} node */
const onScreen = (node) => node !== null && node.offsetParent !== null;

/**
 * A shortcut for something that is not on the screen does nothing at all.
 * @param {HTMLElement | null} node
 */
function press(node) {
  if (node === null || !onScreen(node) || node.matches(":disabled")) return false;
  node.click();
  return true;
}

/** @param {string} selector */
function within(selector) {
  const root = explorer();
  return root ? root.querySelector(selector) : null;
}

/** @param {number} number */
function openView(number) {
  const root = explorer();
  return root ? press(root.querySelectorAll(".fx-tabs [role=tab]")[number - 1] || null) : false;
}

function search() {
  const field = () => within(".fx-panel:not([hidden]) :is(input[type=search], [data-testid=fx-search])");
  if (!onScreen(field())) press(within(".fx-tab[data-view=tokens]"));
  if (!onScreen(field())) return false;
  const input = /** @type {HTMLInputElement} */ (field());
  input.focus();
  input.select();
  return true;
}

/**
 * Escape is the explorer's own while focus is inside it; from elsewhere on the page it lets go of the selection too.
 * @param {UiEvent<KeyboardEvent>} event
 */
function clearSelection(event) {
  const root = explorer();
  if (!root || root.contains(event.target) || event.target.closest(".fx-root, dialog")) return false;
  return press(root.querySelector("[data-testid=fx-selection]:not(.fx-selected-none) button"));
}

/** @type {Record<string, () => unknown>} */
const ACTIONS = {
  "?": () => showKeys(),
  "[": () => press(within(".fx-layer .fx-step")),
  "]": () =>
    press([...document.querySelectorAll("#fe-view .fx-layer .fx-step, .fx-root .fx-layer .fx-step")][1] || null),
  "/": search,
  g: () => press(within(".fx-tab[data-view=groups]")),
};

/** @param {UiEvent<KeyboardEvent>} event */
function runAction(event) {
  if (event.key === "Escape") return clearSelection(event);
  if (/^[1-9]$/.test(event.key)) return openView(Number(event.key));
  return event.key in ACTIONS ? ACTIONS[event.key]() : false;
}

/** @param {KeyboardEvent} event */
function keyDown(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (!(event.target instanceof Element) || event.target.closest(`${TYPING}, dialog`) || (sheet !== null && sheet.open))
    return;
  if (runAction(event) !== false) event.preventDefault();
}

/** @param {string} keys */
function keyNames(keys) {
  return el(
    "dt",
    {},
    keys.split(" ").map((key) => (key === "–" || key === "," ? `${key} ` : el("kbd", {}, key))),
  );
}

function build() {
  /** @param {{ title: string, keys: string[][] }} group */
  const part = (group) =>
    el(
      "section",
      {},
      el("h4", { class: "fx-subtitle" }, group.title),
      el(
        "dl",
        {},
        group.keys.flatMap(([keys, words]) => [keyNames(keys), el("dd", {}, words)]),
      ),
    );
  // The title takes the focus: a button would scroll the sheet to its end.
  const title = el("h2", { class: "fx-title", id: newId("keys"), tabindex: "-1", autofocus: true }, text.title);
  const close = () => dialog.close();
  const tour = () => {
    close();
    startTour();
  };
  /** @type {HTMLDialogElement} */
  const dialog = el(
    "dialog",
    {
      class: "fx-root fx-sheet",
      "aria-labelledby": title.id,
      "data-testid": "fx-keys",
      onclick: (event) => event.target === dialog && close(),
    },
    title,
    el("h3", { class: "fx-sheet-title" }, text.wordsTitle),
    el(
      "dl",
      { class: "fx-glossary" },
      text.words.map(([word, meaning]) => el("div", {}, el("dt", {}, word), el("dd", {}, meaning))),
    ),
    el(
      "p",
      { class: "fx-help" },
      `${text.docs} `,
      el("a", { href: text.paperLink, target: "_blank", rel: "noreferrer" }, text.paper),
    ),
    el("h3", { class: "fx-sheet-title" }, text.keyboardTitle),
    el("p", { class: "fx-help" }, text.note),
    el("div", { class: "fx-sheet-grid" }, text.groups.map(part)),
    el(
      "div",
      { class: "fx-sheet-foot" },
      buttonOf(text.tour, tour, { "data-testid": "fx-tour-again" }),
      buttonOf(text.close, close, { class: "fx-button fx-primary" }),
    ),
  );
  document.body.append(dialog);
  return dialog;
}

const showKeys = () => {
  const dialog = (sheet ??= build());
  if (!dialog.open) dialog.showModal();
};

/**
 * The masthead is drawn by the page's server part, some time after this script has run.
 * @param {number} tries
 */
function addButton(tries) {
  const masthead = document.querySelector(".fe-masthead");
  if (masthead === null) {
    if (tries > 0) setTimeout(() => addButton(tries - 1), 100);
    return;
  }
  if (masthead.querySelector(".fx-help-button")) return;
  masthead.append(
    el(
      "div",
      { class: "fx-root fx-help-button" },
      buttonOf(text.open, () => showKeys(), { "data-testid": "fx-keys-open" }),
    ),
  );
}

/** Listens for the shortcuts on the whole page and adds the button that opens their sheet. */
export function installKeys() {
  document.addEventListener("keydown", keyDown);
  addButton(MASTHEAD_TRIES);
}
