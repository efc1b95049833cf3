// @ts-check
// The state of a view that the address bar holds.
/** @import { Run } from "./run.js" */

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
 * What the address says about a view; nothing when it leads to another one, or to another run than the one given.
 * @param {string} view
 * @param {Run | null} [run]
 * @returns {URLSearchParams}
 */
export const addressOf = (view, run = null) => {
  const address = new URLSearchParams(window.location.search);
  const runId = address.get("run");
  const isOther = run !== null && runId !== null && runId !== run.info.run_id;
  return (address.get("view") || "tokens") === view && !isOther ? address : new URLSearchParams();
};
