// @ts-check
// The entry of every page: pictures and the recorded run follow the site's light or dark colours.
import { BalancePicture } from "./balance-picture.js";
import { EXAMPLE } from "./example.js";
import { MaskPicture } from "./mask-picture.js";
import { SCORES } from "./scores.js";

const frames = /** @type {HTMLIFrameElement[]} */ ([...document.querySelectorAll("iframe")]);

const isDark = () => document.body.dataset.mdColorScheme === "slate";

/** @param {HTMLIFrameElement} frame */
function colourFrame(frame) {
  const inside = frame.contentDocument; // none where the page was opened from disk
  if (!inside?.body) return;
  inside.documentElement.classList.toggle("dark", isDark());
  const root = inside.querySelector(".fx-root");
  if (root) inside.body.style.background = getComputedStyle(root).getPropertyValue("--fx-bg");
}

/**
 * The numbers of a run fill the frame: begin at its tabs, once they are there.
 * @param {HTMLIFrameElement} frame
 */
function beginAtTabs(frame) {
  const inside = frame.contentDocument;
  if (!inside?.body) return;
  const observer = new MutationObserver(() => {
    if (!inside.querySelector(".fx-token")) return;
    observer.disconnect();
    inside.defaultView?.scrollTo(0, inside.querySelector(".fx-bar-sticky")?.getBoundingClientRect().top ?? 0);
  });
  observer.observe(inside.body, { childList: true, subtree: true });
}

function colourAll() {
  for (const root of document.querySelectorAll(".fx-root")) root.classList.toggle("dark", isDark());
  frames.forEach(colourFrame);
}

for (const frame of frames) {
  frame.addEventListener("load", () => {
    colourFrame(frame);
    beginAtTabs(frame);
  });
}

new MutationObserver(colourAll).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });

colourAll();

const mask = document.getElementById("mask-picture");

if (mask) new MaskPicture(mask, EXAMPLE);

const balance = document.getElementById("balance-picture");

if (balance) new BalancePicture(balance, SCORES);
