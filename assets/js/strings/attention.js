// @ts-check
// Labels and sentences of what a token attends to.
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const attention = {
  title: "Attends to",
  hint:
    "Where this token's attention goes in the layer: the probability of each earlier token, under full attention and " +
    "under Focus. Computed from the model on request, up to this token.",
  invite: "The weights are not stored. They take two passes over the text up to this token.",
  show: "Show attention",
  progress: "Progress of the attention",
  waiting: "Waiting for the model…",
  stop: "Stop",
  figure: "Arcs from the token to those it attends to most",
  go: (pos) => `Go to token ${pos}`,
  heads: "Heads",
  all: "Mean over heads",
  head: (head) => `Head ${head}`,
  side: "Arcs of",
  sides: { full: "Full", focus: "Focus" },
  kept: (layer, share, head) =>
    `Of full attention in layer ${layer}${head === null ? "" : `, head ${head}`}, ${share} falls on pairs that Focus ` +
    "keeps. Dashed: dropped.",
  token: "Token",
  dropped: "dropped",
  table: "Tokens with the most attention",
  note: "Each side is a pass of its own: from the second layer on, the two read different inputs.",
};
