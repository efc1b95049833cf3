// @ts-check
// The theme (light or dark) of a root element and the colours its style sheet defines.

export const themeOf = (root) => (root.closest(".dark") ? "dark" : "light");

export const cssColour = (root, name) => getComputedStyle(root).getPropertyValue(`--fx-${name}`).trim();

export const watchTheme = (root, changed) => {
  let theme = themeOf(root);
  const observer = new MutationObserver(() => {
    if (themeOf(root) === theme) return;
    theme = themeOf(root);
    changed();
  });
  for (let node = root; node; node = node.parentElement) {
    observer.observe(node, { attributes: true, attributeFilter: ["class"] });
  }
  return observer;
};
