// @ts-check
// The entry of every page: pictures and the recorded run follow the site's light or dark colours.

const isDark = () => document.body.dataset.mdColorScheme === "slate";

/** @param {HTMLIFrameElement} frame */
function colourFrame(frame) {
  const inside = frame.contentDocument; // none where the page was opened from disk
  if (!inside?.body) return;
  inside.documentElement.classList.toggle("dark", isDark());
  const root = inside.querySelector(".fx-root");
  if (root) inside.body.style.background = getComputedStyle(root).getPropertyValue("--fx-bg");
}

function colourAll() {
  for (const root of document.querySelectorAll(".fx-root")) root.classList.toggle("dark", isDark());
  document.querySelectorAll("iframe").forEach(colourFrame);
}

document.querySelectorAll("iframe").forEach((frame) => frame.addEventListener("load", () => colourFrame(frame)));

new MutationObserver(colourAll).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });

colourAll();
