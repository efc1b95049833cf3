// @ts-check
// Labels and sentences of the Groups view.
import { counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const groups = {
  waiting: "Working out what every group of every layer holds…",
  show: "Show",
  sections: { cards: "This layer", finder: "Find groups", layers: "Across layers" },

  cards: {
    title: (layer) => `Groups of layer ${layer}`,
    help:
      "Each group is described on its own. Letters are given per layer: group A of one layer has nothing to do with " +
      "group A of another. Press a group to select its tokens in every view.",
    pressed: (label) => `Group ${label}`,
    select: "Select tokens",
    selected: "Selected",
    share: "Share",
    confidence: "Confidence",
    purity: "Purity",
    entropy: "Entropy",
    shuffledMean: (mean) => `shuffled ${mean}`,
    tokens: (count) => `${count} tokens`,
    even: (times) => `${times} of even`,
    certain: (floor) => `at least ${floor}`,
    nats: "nats",
    characteristic: "Stand out here",
    characteristicHint: (size, least) =>
      "Tokens found more often in this group than in the rest of the text: log-odds ratio with an informative " +
      `Dirichlet prior (Monroe and others 2008), the prior being the text’s own frequencies weighing ${size} ` +
      `tokens; two uses or more, and a false discovery rate of ${least} over all tokens and groups of a layer, as in ` +
      "Statistics. The number on hover is in standard errors.",
    score: (z, uses) => `${z} standard errors, ${uses} uses in this group`,
    none: "no token stands out",
    frequent: "Most frequent",
    classes: "Word classes",
    mix: (parts) => `Word classes of this group: ${parts}`,
    part: (name, share) => `${name} ${share}`,
    examples: "In context",
    examplesHint:
      "From each third of the group’s tokens, in the order of the text, the one this group was most certain of. " +
      "Press one to find it in the text.",
    goTo: (pos) => `Token ${pos}: show in the text`,
    empty: "No token of this text chose this group.",
    hit: (count, total) => {
      if (total !== "1") return `${count} of the ${total} selected tokens`;
      return count === "1" ? "holds the selected token" : "does not hold the selected token";
    },
    legend: "Word classes",
  },

  names: {
    title: "What they have in common",
    waiting: "Looking for what these tokens have in common…",
    nothing: "no clear content",
    rename: "Rename",
    renameOf: (name) => (name ? `Rename ${name}` : "Give this group a name"),
    field: "Name of this group",
    placeholder: "your name for it",
    save: "Save",
    cancel: "Cancel",
    everywhere: "It is kept with the centroid file and shown in every run with it. Empty takes it back.",
    given: (name) => `your name; from statistics: ${name}`,
    evidence: (share, base, covered) => ` ${share} here, ${base} in the text · ${covered} of them are here`,
    phi: (value, chance) =>
      `phi ${value}: the correlation of being in this group and of having this trait; probability that the best of ` +
      `all traits does as well in a group drawn at random: ${chance}`,
    rare: "below 0.001",
    rule: (traits, least, share, chance, random) =>
      `Of ${traits} traits (word classes, frequent tokens, place in the text, first or repeated use), the one whose ` +
      `correlation with the group (phi) is highest names it, if phi is at least ${least}, at least ${share} of the ` +
      `group’s tokens have the trait, and a group drawn at random would do as well with probability below ${chance} ` +
      `(Fisher’s exact test, corrected for the number of traits). ${random}`,
    random: (phi) => `It must also exceed ${phi}, the highest phi of the groups of random centroids in this layer.`,
    noRandom:
      "Random centroids were not measured for this run (Statistics does that); once they are, a name must exceed " +
      "them too.",
  },

  flags: /** @type {Record<string, string>} */ ({ dead: "empty", starved: "starved", collapsed: "collapsed" }),
  flagHints: /** @type {Record<string, string>} */ ({
    dead: "No token of this text has this as its most probable group.",
    starved: "Holds less than a tenth of an even share.",
    collapsed:
      "Holds more than halfway between an even share and all tokens: heads of this layer that use groups are close " +
      "to full attention.",
  }),

  finder: {
    title: "All groups of all layers",
    help: "Press a heading to rank by it, and a row to open that group’s layer and select its tokens.",
    layer: "Layer",
    allLayers: "all",
    class: "Commonest class",
    allClasses: "any",
    only: "Only",
    filters: { all: "all groups", above: "purer than shuffled", flagged: "empty, starved or collapsed" },
    search: "With token or name",
    searchPlaceholder: "e.g. said, pronouns",
    matches: (shown, total) => `${shown} of ${total} groups`,
    above: (count, filled, expected, draws, seed) =>
      `${count} of ${filled} groups with tokens are purer than 97.5 % of ${draws} shuffles (seed ${seed}); shuffled ` +
      `groups alone would give about ${expected}.`,
    nothing: "No group fits. Choose other filters, or a shorter token.",
    reset: "Reset filters",
    more: (count) => `Show all ${count} groups`,
    open: (label, layer) => `Group ${label} of layer ${layer}: select its tokens`,
    massMeasured: (heads, tokens) =>
      `Measured on this run: mean over ${counted(heads, "head")} and the first ${tokens} tokens ` +
      "as queries. Sparsity shows every head on its own.",
    massMissing:
      "It is not measured for this run yet: open Sparsity, and under “Attention kept” press “Measure attention " +
      "mass”. The numbers then appear here.",
    measure: "Measure the attention kept",
    selectedBelow: (count, all) => `${count} of ${all}`,
    empty: "–",
    even: (times) => `${times} of even`,
    shuffled: (mean, high) => `shuffled ${mean} (${high})`,
    searchHint: "Looks among the six tokens that stand out in a group and its eight most frequent ones.",
    base: (share) => `${share} of the text`,
    tableLabel: "Groups of all layers",
    rows: "Groups of all layers, scrollable",
    columns: {
      group: [
        "Group",
        "The group’s letter and its layer. Letters of different layers have nothing to do with each other.",
      ],
      share: [
        "Share",
        "Tokens whose most probable group this is, over all tokens of the text. Below it the balance: this share " +
        "over an even share (1 over the number of groups); 1× is perfect balance.",
      ],
      confidence: [
        "Confidence",
        "The group’s own probability for its tokens, averaged over the tokens whose most probable group it is. 100 " +
        "% is certain; an undecided layer gives 1 over the number of groups.",
      ],
      entropy: [
        "Entropy",
        "Undecidedness of the group’s tokens in nats: entropy of the probabilities of all groups, averaged over the " +
        "tokens whose most probable group this is. 0 is certain; the logarithm of the number of groups is a tie of " +
        "all.",
      ],
      purity: [
        "Purity",
        "Tokens of the commonest word class in the group, over all tokens of the group. Below it the same when the " +
        "layer’s assignments are shuffled over the tokens and group sizes kept: mean, and in brackets the bound " +
        "that 97.5 % of the shuffles stay below. Purity above the bound is bold.",
      ],
      lift: [
        "Lift",
        "Purity over the share of the same word class in the whole text. 1 means that the group holds no more of it " +
        "than the text does.",
      ],
      class: ["Commonest class", "The word class most tokens of the group belong to, and its share of the whole text."],
      mass: [
        "Attention kept",
        "Share of the full model’s attention that lies inside the layer’s mask. It belongs to the layer, so all " +
        "groups of a layer show the same.",
      ],
      selected: [
        "Selected",
        "Share of the group’s tokens that are selected: selected tokens whose most probable group this is, over all " +
        "tokens of the group.",
      ],
      tokens: ["Stand out", "Tokens most overrepresented against the rest of the text, strongest first."],
    },
  },

  flow: {
    title: "How groups flow from layer to layer",
    help:
      "Each column is a layer, each block a group, as tall as its share of all tokens. Bands are the tokens two " +
      "groups have in common. Press a band or a block to select its tokens; the selected part is drawn strong.",
    layers: "Layers shown",
    presets: { near: "Neighbours", spread: "Spread out", chosen: "Chosen" },
    toggle: (layer) => `Layer ${layer}`,
    limit: (most) =>
      `At most ${most} layers are shown, so that the bands stay readable; the open layer is always one of them.`,
    single: "Choose a second layer to see how groups flow.",
    column: (layer) => `Layer ${layer}`,
    open: (layer) => `Layer ${layer}, open`,
    node: (label, layer, share) => `Group ${label} of layer ${layer}: ${share} of all tokens`,
    link: (from, a, to, b) => `Group ${from} of layer ${a} → group ${to} of layer ${b}`,
    linkShares: (tokens, from, fromShare, to, toShare) =>
      `${counted(tokens, "token")}: ${fromShare} of group ${from}, ${toShare} of group ${to}`,
    selection: (from, a, to, b) => `tokens from group ${from} of layer ${a} to group ${to} of layer ${b}`,
    hidden: (limit, share) => `Bands under ${limit} of all tokens are left out: together ${share} of what flows.`,
    shown: "Every band is drawn.",
    chart: (layers) => `Flow of tokens between the groups of layers ${layers}`,
    table: "Strongest flows as a table",
    columns: ["Flow", "Tokens", "Of the first group", "Of the second group"],
  },

  agreement: {
    title: "Which layers sort tokens alike",
    help: "Press a square to open its row’s layer and see how its groups flow to the column’s layer.",
    hint:
      "Adjusted Rand index of two layers’ groups, over all pairs of tokens: do the two layers agree on which tokens " +
      "belong together, whatever the groups are called? 1 is the same grouping; 0 is what shuffled groups of the " +
      "same sizes give on average; below 0 is less than that. Every token counts with its most probable group.",
    subject: "agreement",
    waiting: "Comparing the layers…",
    value: (value) => `Agreement ${value}`,
    pair: (a, b) => `Layers ${a} and ${b}`,
    null: (low, high, pairs, seed) =>
      `Shuffled groups: ${low} to ${high} over ${pairs} pairs of neighbouring layers (seed ${seed}).`,
    layer: "Layer",
    chart: "Agreement of every two layers",
    table: (layer) => `Agreement of layer ${layer} with every other layer`,
    columns: ["Layer", "Agreement with the open layer", ""],
    compare: "Compare",
    single: "This run has one layer; there is nothing to compare.",
  },
};
