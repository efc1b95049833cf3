// @ts-check
// The form of the Explore tab: folded away while a run is read, brought back by a button of the run's header.
import { buttonOf } from "../core/dom.js";
import { shell } from "../strings/shell.js";

const FORM = "fe-explore-form";
const FOLDED = "fe-form-folded"; // a class of the page; css/shell/page.css hides the form by it

const form = () => document.getElementById(FORM);

const isFolded = () => document.body.classList.contains(FOLDED);

/** @param {boolean} folded */
function setFolded(folded) {
  document.body.classList.toggle(FOLDED, folded);
  for (const button of document.querySelectorAll(".fx-form-toggle")) label(button);
}

/** @param {Element} button */
function label(button) {
  button.textContent = isFolded() ? shell.form.open : shell.form.fold;
  button.setAttribute("aria-expanded", String(!isFolded()));
}

/**
 * Once a run is shown it has the place: also the first one, where the address names it or the page is narrow.
 * @param {string} runId
 * @param {boolean} isFirst
 */
export function foldForm(runId, isFirst) {
  const named = new URLSearchParams(window.location.search).get("run") === runId;
  if (form() && (!isFirst || named || window.matchMedia("(max-width: 700px)").matches)) setFolded(true);
}

export const unfoldForm = () => setFolded(false);

export function openForm() {
  unfoldForm();
  form()?.scrollIntoView({ block: "nearest" });
  form()?.querySelector("textarea")?.focus({ preventScroll: true });
}

// Pages without the form, such as a notebook, have no button for it.
export const formButton = () => {
  if (form() === null) return null;
  const toggle = () => (isFolded() ? openForm() : setFolded(true));
  const button = buttonOf(null, toggle, { class: "fx-button fx-form-toggle", "aria-controls": FORM });
  label(button);
  return button;
};

/** What the page's other tabs may ask of the form. */
export const FocusForm = { open: openForm };
