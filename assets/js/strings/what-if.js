// @ts-check
// Labels and sentences of the What if part: changes made to a run by hand, and what follows from them.
import { counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const whatIf = {
  title: "What if?",
  help:
    "Change what Focus does in this run and see what follows: the text is read again from the first changed " +
    "layer on. Changes add up until you remove them. The run itself stays as it is; save the changed one as a " +
    "run of its own.",
  kinds: {
    move: "Move a token to a group",
    see: "Let a token see another",
    silence: "Silence a group",
    full: "Full attention",
    k: "Another top-k",
    window: "Another window",
  },
  kindLabel: "Change",
  kindHints: {
    move: "The token's most probable group becomes another one, in one layer.",
    see: "The pair attends in every head of the layer, or of all layers.",
    silence:
      "The group links no tokens: its tokens see near ones and sinks only, unless they belong to another group, too. " +
      "Heads with full attention see on.",
    full: "A layer, or one key-value head of it, sees every earlier token.",
    k: "Tokens belong to more or fewer groups. Heads with full attention keep it, unless you name the head.",
    window: "Tokens this near always attend. Heads with full attention keep it, unless you name the head.",
  },
  layer: "Layer",
  allLayers: "all layers",
  token: "Token",
  query: "Token",
  key: "sees token",
  group: "Group",
  head: "Head",
  allHeads: "all heads",
  topK: "Top-k",
  windowField: "Window",
  add: "Apply",
  undo: "Undo",
  clear: "Remove all",
  save: "Save as a run",
  remove: (words) => `Remove the change: ${words}`,
  listLabel: "Changes in force",
  none: "No change yet.",
  describe: {
    move: (layer, token, piece, group) => `layer ${layer}: token ${token} “${piece}” in group ${group}`,
    see: (layer, query, queryPiece, key, keyPiece) =>
      `${layer === "all" ? "all layers" : `layer ${layer}`}: token ${query} “${queryPiece}” sees ${key} “${keyPiece}”`,
    silence: (layer, group) => `layer ${layer}: group ${group} silent`,
    full: (place) => `${place}: full attention`,
    k: (place, value) => `${place}: top-k ${value}`,
    window: (place, value) => `${place}: window ${value}`,
  },
  place: (layer, head) => (head === null ? `layer ${layer}` : `layer ${layer}, head ${head}`),
  loss: (before, after, change, full) =>
    `Perplexity ${after} with the changes, ${before} without (${change}); full attention has ${full}.`,
  interval: (mean, interval) => `That is ${mean} nats per token, ${interval}`,
  decided: { less: ": less loss.", more: ": more loss.", open: ": not to be told from none." },
  same: "The changes change no prediction of this text.",
  predictions: (count, all) => `The most probable next token is another one at ${count} of ${all} places.`,
  groups: (count, layers) =>
    count === "0"
      ? "No token changes its group in any layer."
      : count === "1"
        ? "One token changes its group in one layer."
        : `Tokens change their group ${count} times over ${layers === 1 ? "one layer" : `${layers} layers`}.`,
  partly: (tokens, all) => `Measured on the first ${tokens} of ${all} tokens; no token sees a later one.`,
  chartTitle: "Change of the loss, token by token",
  chartHint: "Nats that each token loses (up) or wins (down) by the changes. Press a token to select it.",
  worseTrace: "worse with the changes",
  betterTrace: "better with the changes",
  positionAxis: "token",
  lossAxis: "change of the loss, nats",
  changeOf: (nats) => `${nats} nats by the changes`,
  otherTop: "another most probable token",
  pairsTitle: (layer) => `Pairs of layer ${layer} that change`,
  pairs: (gained, lost) =>
    `${counted(gained, "pair")} gained, ${lost} lost (mean over the heads of the layer).`,
  pairsNone: "The changes leave the pairs of this layer as they were.",
  pairsLabel: "Pairs gained and lost, in blocks of queries by keys",
  keyAxis: "key",
  queryAxis: "query",
  colourBar: "gained − lost, share of a block",
  block: (query, key) => `queries ${query}, keys ${key}`,
  gained: "gained",
  lost: "lost",
  predictionTitle: (pos) => `Predictions of token ${pos}`,
  before: "Without the changes",
  after: "With the changes",
  choosePrediction: "Select a token, in the chart or in the text, to see what is predicted there.",
  notRead: "This token was not read again.",
  first: "Nothing predicts the first token: there is nothing before it.",
  layersTitle: "Layer by layer",
  layersLabel: "Groups and pairs by layer",
  columns: {
    layer: "Layer",
    moved: "Tokens in another group",
    kept: "Pairs kept",
    change: "Change (percentage points)",
  },
  saved: (name) => `Saved as run ${name}.`,
  open: "Open it",
  command: "The same on the command line",
  copy: "Copy",
  copied: "Copied",
  notCopied: "Not copied",
};
