// @ts-check
// The flags of a group, such as collapsed or empty.
import { el } from "../core/dom.js";
import { groups as groupsText } from "../strings/groups.js";

/** @param {{ flags: string[] }} group */
export const groupFlags = (group) =>
  el(
    "span",
    { class: "fx-flags" },
    group.flags.map((flag) =>
      el("span", { class: "fx-flag", title: groupsText.flagHints[flag] }, groupsText.flags[flag]),
    ),
  );
