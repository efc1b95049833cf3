// @ts-check
// Labels and sentences of the Centroids tab.
import { counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const centroids = {
  loading: "Reading the centroid files…",
  listLabel: "Centroid files",
  shipped: "ships with the project",
  added: (date, owner) => (owner ? `added ${date} by ${owner}` : `added ${date}`),
  runs: (count) => ["no run yet", "1 run"][count] || `${count} runs`,
  use: "Use",
  rename: "Rename",
  newName: (name) => `New name of ${name}`,
  save: "Save",
  cancel: "Cancel",
  back: "Back",
  remove: "Remove",
  removeQuestion: (runs) =>
    "Remove this file and its copy here for good? " +
    (runs === 0
      ? "No run used it."
      : `${runs === 1 ? "One run" : `${runs} runs`} used it: what is stored of them stays, and what is measured ` +
        "for them later needs the file uploaded again."),
  removeSure: "Remove for good",
  keep: "Keep",
  madeFor: (model) => `for ${model}`,
  unnamed: "a model it does not name",
  groups: (count) => counted(count, "group"),
  layers: (count) => counted(count, "layer"),
  dim: (size) => `routing size ${size}`,
  setting: (config) =>
    `top-k ${config.top_k}, window ${config.window}, ` +
    `${counted(config.num_sinks, "sink")}, ${config.gate} gate`,
  settingSubject: "the setting",
  settingHint:
    "What the file was trained for: groups per token (top-k), how near tokens always attend (window), first tokens " +
    "all may see (sinks), and how groups act while training (gate).",
  budget: (words) => `budget: ${words}`,
  settingHintBudget:
    " A budget gives some heads settings of their own: those that lose most by grouping attend to everything (in " +
    "full), or to more groups; others see no group at all. Heads are key-value heads, each with the query heads that " +
    "share it, unless query heads are named.",
  headsFull: (count) => (count === 1 ? "1 head in full" : `${count} heads in full`),
  headsAlone: (count) => (count === 1 ? "1 head without groups" : `${count} heads without groups`),
  headsOther: (count) => (count === 1 ? "1 head with another setting" : `${count} heads with another setting`),
  headsTopK: (count) => (count === 1 ? "1 head with another top-k" : `${count} heads with another top-k`),
  queryHeadsFull: (count) => (count === 1 ? "1 query head in full" : `${count} query heads in full`),
  queryHeadsAlone: (count) => (count === 1 ? "1 query head without groups" : `${count} query heads without groups`),
  queryHeadsOther: (count) =>
    count === 1 ? "1 query head with another setting" : `${count} query heads with another setting`,
  queryHeadsTopK: (count) =>
    count === 1 ? "1 query head with another top-k" : `${count} query heads with another top-k`,
  layersFull: (count) => (count === 1 ? "1 layer in full" : `${count} layers in full`),
  layersAlone: (count) => (count === 1 ? "1 layer without groups" : `${count} layers without groups`),
  layersOther: (count) => (count === 1 ? "1 layer with another setting" : `${count} layers with another setting`),
  layersTopK: (count) => (count === 1 ? "1 layer with another top-k" : `${count} layers with another top-k`),
  budgetsTitle: "Measured budgets",
  budgetsHelp:
    "The more heads in full or with more groups, the more pairs of tokens are computed and the less is lost. Each " +
    "point is a budget that was measured as a whole when the file was tuned. Use keeps a copy of the file with that " +
    "budget and chooses it on the Explore page.",
  budgetsChart: "Pairs kept and rise in perplexity of every measured budget",
  budgetsTarget: {
    loss: (value) => `target: at most ${value}`,
    pairs: (value) => `target: at most ${value} of pairs`,
  },
  budgetsCountedAt: (tokens) =>
    `Pairs are counted on texts of ${tokens} tokens; of longer texts a budget keeps a smaller share.`,
  budgetsTargetMet: (words) => `The search's ${words}.`,
  budgetsTargetMissed: (words) => `The search's ${words}. No measured budget meets it.`,
  budgetsX: "pairs kept",
  budgetsY: "perplexity above full attention",
  worstTraceBudget: "worst domain",
  noBudgetTrace: "without a budget",
  ownTrace: "this file",
  noBudget: "Without a budget",
  budgetsTable: "Measured budgets",
  budgetColumns: ["Pairs kept", "Worst domain", "Heads in full", "Without groups", "Other settings", ""],
  worst: (change, domain) => `${change} (${domain})`,
  useBudget: "Use",
  useBudgetLabel: (share) => `Use the budget with ${share} of pairs on the Explore page`,
  ownBudget: "this file",
  budgetAbove: (share, change) => `${change} with ${share} of pairs`,
  budgetsAbove: (points) => `Too far above to be drawn: ${points.join(", ")}.`,
  keyHeads: (count) => counted(count, "head"),
  queryHeads: (count) => counted(count, "query head"),
  wholeLayers: (count) => counted(count, "whole layer"),
  and: (first, second) => `${first}, ${second}`,
  usingBudget: "Keeping a copy…",
  heldOutTitle: "On held-out text",
  heldOutHelp: (most) =>
    `The points above rest on few sequences of text (${most} of each domain at most), the same ones the budgets were ` +
    "searched on. The rows below are of text the search never saw: they are the numbers to quote.",
  heldOutOther: (share) =>
    `These rows were measured with the budget of ${share} of pairs that the search chose, not with this file's own. ` +
    "To quote this file, measure it on held-out text (focus-explorer evaluate).",
  beforeFactors:
    "All of this was measured before this file's factors of logits were learned. They change what every budget " +
    "loses, and were learned with this file's own.",
  beforeBalance:
    "Since then the sizes of this file's groups were balanced on other text, which changes a little what every " +
    "budget keeps and loses.",
  beforeGrowth:
    "Since then the growth of this file's windows was changed, which changes what every budget keeps and loses on " +
    "texts that are longer than the position from which windows grow.",
  beforeTextSinks:
    "Since then the text sinks of this file were changed, which changes what every budget keeps and loses.",
  heldOutUnknown: "These rows were measured with another budget than this file's own.",
  heldOutColumns: ["Domain", "Perplexity above full attention", "95 % interval", "Pairs kept", "Sequences"],
  heldOutInterval: (low, high) => `${low} to ${high}`,
  trainedOn: "Trained on",
  heldOut: "Held-out text",
  heldOutHint:
    "Perplexity on text the training never saw, as the training wrote it into the file: lower is better. Nothing " +
    "here is measured by this page.",
  heldOutFull: (value, scored) =>
    `perplexity with full attention ${value}${scored ? ` (${scored} tokens scored)` : ""}`,
  heldOutFocus: (name, value, kept) => `with Focus at ${name}: ${value}${kept ? `, ${kept} of pairs kept` : ""}`,
  heldOutInside: (domains, inspect) =>
    `with its budget, on text of ${counted(domains, "domain")}: see ${inspect}`,
  noHeldOut: "The file holds no held-out result.",
  noTraining: "The file does not say how it was trained.",
  untrained: (seed) => `Not trained: random, seed ${seed}.`,
  tokens: (count) => `${count} tokens of text`,
  balanced: (texts) => `groups balanced on ${texts}`,
  tokensSeen: (count) => `${count} tokens seen`,
  steps: (count) => `${count} steps`,
  factorsAlone: "factors of logits alone, for groups trained before",
  hardSteps: (count) => `the last ${count} on the hard mask`,
  distilled: "towards full attention's predictions",
  partlyDistilled: "towards the text and full attention's predictions",
  length: (count) => `sequences of ${count}`,
  rate: (rate) => `learning rate ${rate}`,
  seed: (seed) => `seed ${seed}`,
  took: (time) => `took ${time}`,
  inspect: "Look inside",
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
  notSet: "none",
  allLayers: "all",
  yes: "yes",
  no: "no",
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
  unmatched: (count) =>
    `${count} ${count === "1" ? "group has" : "groups have"} no partner, because the files differ in their number of ` +
    "groups.",
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
    "groups; near 100 % the groups have collapsed, and heads that use groups are close to full attention.",
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
