// @ts-check
// Links within the page. Gradio's pages have a <base>, so that "#part" alone would open the page again without its run.

/** @param {Document} page */
export function followJumps(page) {
  page.addEventListener("click", (event) => {
    const link = /** @type {HTMLElement} */ (event.target).closest?.("a[href^='#']");
    const target = link ? page.getElementById(/** @type {string} */ (link.getAttribute("href")).slice(1)) : null;
    if (target === null) return;
    event.preventDefault();
    if (!target.hasAttribute("tabindex")) target.setAttribute("tabindex", "-1"); // else it cannot take the focus
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "start" });
  });
}
