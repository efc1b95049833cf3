// @ts-check
// The state of a view that the address bar holds.

/**
 * The part of a view that the address asks for, or the first one.
 * @template {string} Name
 * @param {Name[]} names
 * @param {NoInfer<Name>} first
 * @returns {Name}
 */
export const addressedPart = (names, first) => {
  const part = new URLSearchParams(window.location.search).get("part");
  return names.find((name) => name === part) ?? first;
};

/**
 * What the address says about a view; nothing when it leads to another one.
 * @param {string} view
 * @returns {URLSearchParams}
 */
export const addressOf = (view) => {
  const address = new URLSearchParams(window.location.search);
  return (address.get("view") || "tokens") === view ? address : new URLSearchParams();
};
