// @ts-check
// Labels and sentences of the sheet of keyboard shortcuts.
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const keys = {
  open: "Keyboard and help",
  title: "Keyboard",
  close: "Close",
  tour: "Take the tour again",
  note: "Shortcuts rest while you type in a field.",
  groups: [
    {
      title: "Everywhere",
      keys: [
        ["?", "Show this sheet"],
        ["Tab", "Next control"],
        ["Esc", "Close, then let go of the selection"],
      ],
    },
    {
      title: "A run",
      keys: [
        ["[", "Previous layer"],
        ["]", "Next layer"],
        ["1 – 9", "Open the view of that number"],
        ["g", "Open the groups"],
        ["/", "Search the text"],
      ],
    },
    {
      title: "The text",
      keys: [
        ["← → ↑ ↓", "Move from token to token"],
        ["PageUp , PageDown", "Move by a screen"],
        ["Home , End", "First and last token shown"],
        ["Shift ← → ↑ ↓", "Choose a range, also with the keys above"],
        ["Enter", "Choose the token in focus, or let go of it"],
      ],
    },
    {
      title: "Search in the text",
      keys: [
        ["Enter", "Next hit"],
        ["Shift Enter", "Previous hit"],
        ["Esc", "Empty the field"],
      ],
    },
    {
      title: "Path of a token",
      keys: [
        ["← →", "From layer to layer"],
        ["Home , End", "First and last layer"],
      ],
    },
    {
      title: "The mask",
      keys: [
        ["+ , −", "Zoom in and out"],
        ["0", "Show the whole mask"],
        ["← → ↑ ↓", "Move the picture, or the cursor once it is shown"],
        ["Shift ← → ↑ ↓", "Move the picture"],
        ["Enter", "Show the cursor; then choose its cell"],
        ["Esc", "Leave the cursor"],
      ],
    },
    { title: "The SQL box", keys: [["Ctrl Enter", "Run the query"]] },
  ],
};
