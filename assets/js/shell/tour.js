// @ts-check
// The guided tour of the first visit: a card next to one part of the page after another, never modal.
import { buttonOf, el, newId } from "../core/dom.js";
import { unfoldForm } from "./form.js";
import { tour as text } from "../strings/tour.js";

const DONE = "fx-tour-done";

const GAP = 14;

const START_TRIES = 300;

const TARGETS = {
  text: "#fe-text",
  cards: ".fx-header-more, .fx-cards", // the button where it folds them
  views: "#fe-view .fx-tabs",
  layer: "#fe-view .fx-layer",
  tokens: "[data-testid=fx-tokens]",
  more: "#fe-tabs [role=tablist]",
};

/** @type {Tour | null} */
let tour = null;

/** @param {keyof typeof TARGETS} name */
const find = (name) => [...document.querySelectorAll(TARGETS[name])].find((node) => node.offsetParent !== null) ?? null;

function remembered() {
  try {
    return window.localStorage.getItem(DONE) !== null;
  } catch {
    return true; // no memory at all: better no tour than one at every visit
  }
}

function remember() {
  try {
    window.localStorage.setItem(DONE, "1");
  } catch {
    // private browsing: the tour was closed, and that is what counts
  }
}

class Tour {
  /** @type {HTMLElement | null} */
  target;

  constructor() {
    this.names = /** @type {(keyof typeof TARGETS)[]} */ (Object.keys(TARGETS)).filter(find);
    this.at = 0;
    this.before = /** @type {HTMLElement | null} */ (document.activeElement);
    this.title = el("h2", { class: "fx-subtitle", id: newId("tour") });
    this.words = el("p", { id: newId("tour-words") });
    this.count = el("span", { class: "fx-muted", role: "status" });
    this.back = buttonOf(text.back, () => this.show(this.at - 1));
    this.next = buttonOf(null, () => this.show(this.at + 1), {
      class: "fx-button fx-primary",
      "data-testid": "fx-tour-next",
    });
    this.node = el(
      "div",
      {
        class: "fx-root fx-tour",
        role: "dialog",
        "aria-label": text.label,
        "aria-describedby": this.words.id,
        "data-testid": "fx-tour",
        onkeydown: (event) => this.key(event),
      },
      this.title,
      this.words,
      el("div", { class: "fx-tour-foot" }, this.count, this.back, this.next),
      buttonOf(text.skip, () => this.end(), { class: "fx-tour-skip", "data-testid": "fx-tour-skip" }),
    );
    document.body.append(this.node);
    this.moved = () => this.place();
    // Whoever explores a text has begun without the tour, which would lie over the result.
    this.pressed = (/** @type {MouseEvent} */ event) =>
      /** @type {Element} */ (event.target).closest("#fe-run") && this.end();
    document.addEventListener("click", this.pressed);
    window.addEventListener("resize", this.moved);
    window.addEventListener("scroll", this.moved, { passive: true, capture: true }); // of whatever scrolls
    this.show(0);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    /** @type {Record<string, number>} */
    const steps = { ArrowRight: 1, ArrowLeft: -1 };
    if (event.key === "Escape") this.end();
    else if (event.key in steps) this.show(Math.max(0, this.at + steps[event.key]));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} at */
  show(at) {
    if (at >= this.names.length) return this.end();
    this.at = at;
    const [title, words] = text.steps[this.names[at]];
    this.title.textContent = title;
    this.words.textContent = words;
    this.count.textContent = text.step(at + 1, this.names.length);
    this.back.disabled = at === 0;
    this.next.textContent = at === this.names.length - 1 ? text.done : text.next;
    this.mark(find(/** @type {"text" | "tokens" | "layer" | "more" | "cards" | "views"} */ (this.names[at])));
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (this.target) this.target.scrollIntoView({ block: "center", behavior: still ? "auto" : "smooth" });
    this.place();
    this.next.focus({ preventScroll: true });
    return undefined;
  }

  /** @param {HTMLElement | null} target */
  mark(target) {
    if (this.target) this.target.classList.remove("fx-tour-target");
    this.target = target;
    if (target) target.classList.add("fx-tour-target");
  }

  // Next to its target or below it, and whole in the window; at the foot of a target taller than half of that.
  place() {
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const rect = this.target
      ? this.target.getBoundingClientRect()
      : { left: GAP, bottom: 0, height: 0, top: GAP, right: 0 };
    const tall = rect.height > window.innerHeight / 2;
    const widest = document.documentElement.clientWidth - width - GAP;
    const fitsRight = rect.right + GAP + width < document.documentElement.clientWidth;
    const lowest = window.innerHeight - height - GAP;
    const top = fitsRight ? rect.top : tall ? lowest : rect.bottom + GAP;
    this.node.style.left = `${fitsRight ? rect.right + GAP : Math.max(GAP, Math.min(rect.left, widest))}px`;
    this.node.style.top = `${Math.max(GAP, Math.min(top, lowest))}px`;
  }

  end() {
    remember();
    this.mark(null);
    window.removeEventListener("resize", this.moved);
    window.removeEventListener("scroll", this.moved, { capture: true });
    document.removeEventListener("click", this.pressed);
    this.node.remove();
    tour = null;
    if (this.before && this.before.isConnected) this.before.focus({ preventScroll: true });
  }
}

export const startTour = () => {
  if (tour !== null) tour.end();
  const explore = document.querySelector("#fe-tabs [role=tab]"); // its steps are all on the first tab
  if (explore && explore.getAttribute("aria-selected") !== "true") explore.click();
  unfoldForm();
  setTimeout(() => {
    tour = new Tour();
  }, 50);
};

// A program that drives the page is not a first visit, unless it asks for the tour.
function shouldStart() {
  const parameter = new URLSearchParams(window.location.search).get("tour");
  if (parameter !== null) return parameter === "on";
  return !navigator.webdriver && !remembered();
}

// Whoever has begun to do something by the time the first run is drawn is not interrupted.
let busy = false;

const markBusy = () => {
  busy = true;
};

/** @param {number} tries */
function startWhenReady(tries) {
  if (busy) return;
  if (document.querySelector("[data-testid=fx-header]")) startTour();
  else if (tries > 0) setTimeout(() => startWhenReady(tries - 1), 200);
}

/** Starts the tour once the first run is drawn, if this is a person's first visit. */
export function startTourOnFirstVisit() {
  if (!shouldStart() || window.self !== window.top) return;
  for (const event of ["keydown", "pointerdown"])
    window.addEventListener(event, markBusy, { once: true, capture: true });
  startWhenReady(START_TRIES);
}
