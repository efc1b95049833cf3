// @ts-check
// Labels and sentences of the Centroids tab.
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const centroids = {
  loading: "Reading the centroid files…",
  listLabel: "Centroid files",
  shipped: "ships with the project",
  added: (date) => `added ${date}`,
  madeFor: (model) => `for ${model}`,
  unnamed: "a model it does not name",
  groups: (count) => `${count} groups`,
  layers: (count) => `${count} layers`,
  dim: (size) => `routing size ${size}`,
  setting: (config) =>
    `top-k ${config.top_k}, window ${config.window}, ` +
    `${config.num_sinks === 1 ? "1 sink" : `${config.num_sinks} sinks`}, ${config.gate} gate`,
  settingSubject: "the setting",
  settingHint:
    "What the file was trained for: groups per token (top-k), how near tokens always attend (window), first tokens " +
    "all may see (sinks), and how groups act while training (gate).",
  trainedOn: "Trained on",
  heldOut: "Held-out text",
  heldOutHint:
    "Perplexity on text the training never saw, as the training wrote it into the file: lower is better. Nothing " +
    "here is measured by this page.",
  heldOutFull: (value, scored) =>
    `perplexity with full attention ${value}${scored ? ` (${scored} tokens scored)` : ""}`,
  heldOutFocus: (name, value, kept) => `with Focus at ${name}: ${value}${kept ? `, ${kept} of pairs kept` : ""}`,
  noHeldOut: "The file holds no held-out result.",
  noTraining: "The file does not say how it was trained.",
  untrained: (seed) => `Not trained: random, seed ${seed}.`,
  tokens: (count) => `${count} tokens of text`,
  tokensSeen: (count) => `${count} tokens seen`,
  steps: (count) => `${count} steps`,
  length: (count) => `sequences of ${count}`,
  rate: (rate) => `learning rate ${rate}`,
  seed: (seed) => `seed ${seed}`,
  took: (time) => `took ${time}`,
  inspect: "Look inside",
  inspectLabel: (name) => `Look inside ${name}`,
  loadingFile: (name) => `Reading ${name}…`,
  compareTitle: "What changed between two files",
  first: "First file",
  second: "Second file",
  compare: "Compare files",
  needTwo: "Upload a second file to see what changed between two.",
  settingsTable: "Settings that differ",
  settingColumn: "Setting",
  noDifference: "No setting differs.",
  none: "–",
  distanceTitle: "Distance of matched groups, layer by layer",
  distanceHelp:
    "Groups are numbered anew by every training, so each group of one file is matched with the one most like it in " +
    "the other (Hungarian matching). Distance: 0 the same direction in the model's hidden state, 1 unrelated, 2 " +
    "opposite.",
  nullTrace: "untrained random centroids instead of the second file",
  meanTrace: "mean over matched groups",
  worstTrace: "pair furthest apart",
  distanceAxis: "1 − cosine",
  layerAxis: "layer",
  pairsTable: "The same numbers as a table: every matched pair",
  pairColumns: (first, second) => ["Layer", first, second, "Distance"],
  unmatched: (count) => `${count} groups have no partner, because the files differ in their number of groups.`,
  inside: (name) => `Inside ${name}`,
  balanceTitle: "Dominance and balance of its groups",
  balanceHelp:
    "How the tokens of the run chosen here spread over the groups, layer by layer. Every run that used this file " +
    "can be chosen.",
  sharesTitle: "Share of every group",
  sharesHint:
    "Share of the run's tokens in every group. Even groups have equal bands; one wide band is a collapsed layer.",
  dominanceTitle: "Largest group (dominance)",
  dominanceHint:
    "Dominance is the share of tokens in a layer's largest group. Even groups would have 1/K, K being the number of " +
    "groups; near 100 % the groups have collapsed, and Focus keeps nearly every pair.",
  dominanceTrace: "largest group",
  evenTrace: (groups) => `even: 1/${groups}`,
  largestIs: (group) => `largest: group ${group}`,
  evenIs: "even",
  balance: "balance",
  balanceHint:
    "The entropy of the group sizes divided by that of K even groups (ln K): 1 when all groups are equal, 0 when " +
    "one group has every token. Unlike the largest group it also sees how the others differ.",
  balanceFinding: ([average, worst, layer], [groups, even], [balance, least, where]) =>
    `The largest group has ${average} of the tokens, mean over layers, and ${worst} in layer ${layer}, where it is ` +
    `largest; ${groups} even groups would have ${even}. The balance is ${balance}, mean over layers, and ${least} ` +
    `in layer ${where}, where it is least.`,
  balanceRun: "Run",
  balanceNone:
    "No run has used this file yet. Choose it on the Explore page and explore a text: dominance and balance of its " +
    "groups are then drawn here.",
  dominance: "largest group",
  even: (share) => `even would be ${share}`,
  shareAxis: "share of tokens",
  balanceTable: "Layer by layer",
  balanceTableHelp: "Largest group and balance of the run chosen above.",
  similarityTitle: "How alike its centroids are",
  similarityHelp:
    "Cosine between every two centroids of a layer in routing space: 1 the same direction, 0 unrelated, −1 " +
    "opposite. Groups whose centroids are alike compete for the same tokens.",
  similarityLayer: "Layer",
  similarityHover: (a, b, value) => `Group ${a} and group ${b}: ${value}`,
  mostAlike: (a, b, value) => `Most alike in this layer: groups ${a} and ${b}, cosine ${value}.`,
  similarityTable: "The same numbers as a table",
};
