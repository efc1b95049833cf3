// @ts-check
// The state of a view that the address bar holds.

// The part of a view that the address asks for, or the first one.
export const addressedPart = (names, first) => {
  const asked = new URLSearchParams(window.location.search).get("part");
  return names.includes(asked) ? asked : first;
};

// What the address says about a view; nothing when it leads to another one.
export const addressOf = (view) => {
  const address = new URLSearchParams(window.location.search);
  return (address.get("view") || "tokens") === view ? address : new URLSearchParams();
};
