// @ts-check
// Labels and sentences of the Runs tab.
import { common, counted, tokensInWords } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const runs = {
  empty: {
    title: "No run yet",
    body:
      "Paste a text on the Explore page and press Explore. Every run is then listed here, to name, tag, reopen and " +
      "compare.",
  },
  noneMatch: "No run matches. Change or clear the filters.",
  loading: "Loading the runs…",
  listLabel: "Stored runs, newest first",
  search: "Find",
  searchHint: "name, text, note, tag or id",
  filters: { model: "Model", centroids: "Centroids", setting: "Setting", tag: "Tag" },
  any: "any",
  clearFilters: "Clear filters",
  count: (shown, all) => (shown === all ? counted(all, "run") : `${shown} of ${all} runs`),
  more: (count) => `Show ${count} more`,
  madeBy: (date, owner) => `${date}, by ${owner}`,
  setting: (config) =>
    `K=${config.num_groups}, k=${config.top_k}, w=${config.window}${common.growing(config)}, s=${config.num_sinks}` +
    common.exceptions(config),
  settingSubject: "the setting",
  settingHint:
    "K: groups in a layer. k: groups a token joins. w: tokens this near always attend (the window), except in heads " +
    "with another. s: first tokens that every token may attend to (the sinks). Growing: a window that grows in " +
    "proportion to the position, between the positions named. Budget: how many layers and heads have settings of " +
    "their own, and digits that tell it from other budgets.",
  tokens: tokensInWords,
  perplexity: "Perplexity",
  perplexityHint: "How surprised the model is by the text, lower is better: full attention, then Focus.",
  arrow: " → ",
  pairs: "Pairs kept",
  pairsHint: "Share of token pairs a layer still computes under Focus, mean over the layers.",
  largest: "Largest group",
  largestHint: "Share of tokens in the largest group, mean over the layers; near 100 % the groups have collapsed.",
  open: "Open",
  openLabel: (name) => `Open ${name}`,
  compare: "Compare",
  compareLabel: (name) => `Choose ${name} to compare`,
  compareOne: (name) => `“${name}” is chosen. Choose a second run to compare it with.`,
  compareTwo: (first, second) => `“${first}” and “${second}” are chosen.`,
  withId: (name, id) => `${name} (${id})`,
  compareGo: "Compare the two",
  compareClear: "Choose none",
  edit: "Edit",
  editLabel: (name) => `Edit name, note and tags of ${name}`,
  name: "Name",
  note: "Note",
  tags: "Tags, with commas between",
  save: "Save",
  cancel: "Cancel",
  saved: (name) => `“${name}” is saved.`,
  remove: "Delete",
  removeLabel: (name) => `Delete ${name}`,
  removed: (name, days) =>
    `“${name}” is hidden. It is removed for good in ${days} days, or with “focus-explorer runs purge”.`,
  undo: "Undo",
  restored: (name) => `“${name}” is back.`,
  deletedTitle: (count) => `Deleted runs (${count})`,
  deletedHelp: (days) =>
    `Hidden, and removed for good ${days} days after they were deleted; “focus-explorer runs purge” removes them now.`,
  deletedAt: (date) => `deleted ${date}`,
  restore: "Bring back",
  restoreLabel: (name) => `Bring back ${name}`,
  tagLabel: (tag) => `Show only runs with the tag ${tag}`,
};
