// @ts-check
// Labels and sentences of the Statistics view.
import { common, counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const statistics = {
  show: "Show",
  parts: {
    overview: "Overview",
    questions: "Questions",
    layers: "By layer",
    groups: "Groups",
    distances: "Distances",
    agreement: "Agreement",
  },
  questions: {
    label: "Question",
    help:
      "Choose a question: the answer is a sentence with its 95 % interval, and a figure with what it must be " +
      "compared with. The figure’s own menu saves it as SVG.",
    ask: {
      worse: "Does Focus predict this text worse?",
      faster: "Is it faster here?",
      content: "Do groups follow kinds of words?",
      words: "Does a word stay in one group?",
      even: "Are the groups even?",
      far: "Do groups keep more distant pairs than their sizes would?",
      attention: "Do they keep the distant attention that matters?",
    },
    figure: "The answer as a figure: values with their intervals",
    focus: "Focus",
    full: "Full attention",
    randomName: "Random centroids",
    shuffledName: "Shuffled groups",
    evenName: "Even groups",
    worseMeans:
      "The interval is over blocks of neighbouring tokens; where it holds zero, this text cannot tell the two apart.",
    worseAxis: "loss above full attention, nats per token",
    fasterAxis: "a whole pass of the model, ms (range over the repeats)",
    repeats: (count) =>
      count === 1 ? "Each was timed once: that tells little." : `Each was timed ${count} times; bars are the range.`,
    verdicts: {
      above: "More than by chance.",
      below: "Less than by chance.",
      belowRandom: "More than by chance, but less than random centroids.",
      same: (what) => `This text cannot tell: it ${what}.`,
      equal: "Shuffled groups give the same: this says nothing of what is in the groups.",
      unknown: "This text cannot tell: there is no interval to compare with shuffled groups.",
    },
    evenVerdict: (even, isEven) =>
      isEven ? `Nearly: even groups would have ${even}.` : `No: even groups would have ${even}.`,
    states: (name, value, interval) => `${name}: ${value} (95 % interval ${interval})`,
    noInterval: "not known",
    shuffled: (value) => `shuffled groups give ${value}`,
    random: (value) => `random centroids ${value}`,
    randomMissing: "Random centroids were not measured on this text: Overview does it in one pass.",
    notMeasured: "This was not measured for this run. Overview says what is missing and measures it.",
    inCompare: /** @type {Record<string, string>} */ ({
      worse: "Token by token, in Compare",
      faster: "By stage, in Compare",
    }),
    allStatistics: "All statistics",
  },
  waiting: "Working out the statistics of this run, with intervals and baselines…",
  waitingPart: "Working it out…",
  progress: (percent) => `${percent} of the layers`,

  schemes: /** @type {Record<string, string>} */ ({
    pos: "parts of speech",
    dep: "syntactic relations",
    word: "kinds of word",
  }),
  schemesLong: /** @type {Record<string, string>} */ ({
    pos: "Part of speech",
    dep: "Syntactic relation",
    word: "Kind of word",
  }),
  name: (name, scheme) => (scheme ? `${name}, ${scheme}` : name),
  tag: (name, tag) => `${name} (${tag})`,
  tags: /** @type {Record<string, Record<string,string>>} */ ({
    pos: {
      ADJ: "adjective",
      ADP: "preposition",
      ADV: "adverb",
      AUX: "auxiliary verb",
      CCONJ: "and, or, but",
      DET: "determiner",
      INTJ: "interjection",
      NOUN: "noun",
      NUM: "number",
      PART: "particle",
      PRON: "pronoun",
      PROPN: "proper name",
      PUNCT: "punctuation",
      SCONJ: "that, if, when",
      SPACE: "white space",
      SYM: "symbol",
      VERB: "verb",
      X: "other",
    },
    dep: {
      ROOT: "root of the sentence",
      acl: "clause of a noun",
      acomp: "adjective after a verb",
      advcl: "adverbial clause",
      advmod: "adverb",
      agent: "agent of a passive",
      amod: "adjective of a noun",
      appos: "apposition",
      attr: "attribute",
      aux: "auxiliary",
      auxpass: "passive auxiliary",
      case: "case mark",
      cc: "conjunction",
      ccomp: "clause as object",
      compound: "part of a compound",
      conj: "joined by and, or",
      csubj: "clause as subject",
      dative: "indirect object",
      dep: "unclassified",
      det: "determiner",
      dobj: "direct object",
      expl: "expletive it, there",
      intj: "interjection",
      mark: "that, if, when",
      meta: "meta",
      neg: "negation",
      nmod: "modifier of a noun",
      npadvmod: "noun as adverb",
      nsubj: "subject",
      nsubjpass: "passive subject",
      nummod: "number",
      oprd: "object predicate",
      parataxis: "parataxis",
      pcomp: "clause of a preposition",
      pobj: "object of a preposition",
      poss: "possessor",
      preconj: "both, either",
      predet: "all, such",
      prep: "preposition",
      prt: "particle of a verb",
      punct: "punctuation",
      quantmod: "quantifier",
      relcl: "relative clause",
      xcomp: "open complement",
    },
  }),
  interval: (low, high) => `${low} to ${high}`,
  none: "–",
  notMeasured: "not measured",
  noInterval: "no interval",

  baselines: {
    shuffled: [
      "Shuffled",
      "The same statistic after all tokens of a layer swapped their groups at random: sizes stay, meaning goes. " +
      "Mean and 95 % range of many shuffles, or the exact expectation.",
    ],
    random: [
      "Random",
      "The same statistic for centroids drawn at random, balanced like trained ones, on the same text.",
    ],
    window: [
      "No groups",
      "The same without any groups: one group of all tokens for sizes and categories, window and sinks alone for " +
      "pairs and attention. Heads with full attention count with the window there, as if they had none of it.",
    ],
    difference: [
      "Minus random",
      "The value minus that of random centroids. Both are resampled together, so the interval is that of the " +
      "difference.",
    ],
  },
  indistinct: {
    shuffled: "could be shuffled groups",
    random: "could be random centroids",
    both: "could be shuffled groups or random centroids",
    below: "below shuffled groups",
  },
  q: (value) => (value < 0.001 ? "q\u00a0<\u00a00.001" : `q\u00a0=\u00a0${value.toFixed(3)}`), // never broken in two
  qHint:
    "q is the p-value against shuffled groups, corrected for looking at many rows (Benjamini and Hochberg). Below " +
    "0.05, about one in twenty of such rows differs by chance alone.",

  overview: {
    title: "What the groups of this run are, over all layers",
    basis: "What the numbers rest on",
    tokens: "Text",
    tokensValue: (tokens, units, unit) => `${tokens} tokens in ${counted(units, unit)}`,
    tokensHelp: (unit) =>
      `Intervals are 95 % bootstrap intervals: whole ${unit}s are drawn again and again, because tokens next to each ` +
      "other are not independent.",
    tagger: "Tagger",
    noTagger: "none: word lists",
    taggerHelp: "Parts of speech and syntactic relations are its guesses, not the truth.",
    random: "Random centroids",
    randomValue: (seed) => `measured, seed ${seed}`,
    attention: "Full attention",
    attentionValue: (tokens) => `measured on ${tokens} tokens`,
    missing: "not measured",
    short: {
      few: (units, unit) =>
        `This text has only ${counted(units, unit)}: too short to tell much. Intervals are unreliable.`,
      rough: (units, unit) => `This text has only ${counted(units, unit)}: intervals are rough.`,
    },
    measureTitle: "Some of it is not measured yet",
    measureHelp:
      "Full attention adds how much of it the mask keeps. It is slower: one more pass for each set of centroids, on " +
      "the first 4,096 tokens at most.",
    measureHelpRandom:
      "How much of full attention random centroids would keep: one more pass, on the first 4,096 tokens at most.",
    measure: "Measure tags and random centroids",
    measureAttention: "Measure full attention too",
    measureAttentionRandom: "Measure it for random centroids too",
    measuring: "Measuring",
    stop: "Stop",
    stopping: "Stopping at the next step…",
    stopped: "Stopped. What was measured until then is kept.",
    commandHint: (run, attention) =>
      `From the command line: \`focus-explorer statistics ${run}${attention ? " --attention" : ""}\``,
    columns: { name: "Statistic", value: "Value", n: "Tokens or pairs" },
    valueHint:
      "Mean over all layers, and below it the 95 % interval. Pale: the number cannot be told from shuffled groups " +
      "or from random centroids.",
    nHint: "How many tokens, pairs or query positions it is a share or mean of, in each layer.",
    table: "Statistics of the run over all layers",
    explain: "Press or hover a name's question mark for what it means; docs/statistics.md has every formula.",
    caution: "No number here says that groups mean something by itself: look at how far it lies from its baselines.",
  },

  layers: {
    title: (name) => `${name} by layer`,
    statistic: "Statistic",
    chart: (name) => `${name} by layer, with its interval and its baselines`,
    help: "Line: this run, with the 95 % interval. Click a point to open its layer in every view.",
    key: { value: "this run", shuffled: "shuffled groups", random: "random centroids", window: "without groups" },
    axis: "layer",
    tooltip: (layer) => `Layer ${layer}`,
    table: "The same numbers as a table",
    columns: {
      layer: "Layer",
      value: "Value",
      interval: "95 % interval",
      shuffled: "Shuffled",
      random: "Random",
      window: "Without groups",
      difference: "Minus random",
      q: "q",
    },
    open: (layer) => `Open layer ${layer}`,
    constant: "Shuffling keeps sizes and probabilities, so it changes nothing here.",
  },

  groups: {
    title: (layer) => `Groups of layer ${layer}, with intervals`,
    help: "Letters are given per layer. Press a group to select its tokens in every view.",
    select: "Select tokens",
    selected: "Selected",
    of: (label) => `Group ${label}`,
    share: "Share of tokens",
    confidence: "Confidence",
    leading: (scheme) => `Commonest ${scheme}`,
    leadingNames: /** @type {Record<string, string>} */ ({
      pos: "part of speech",
      dep: "syntactic relation",
      word: "kind of word",
    }),
    baselineShares: (shuffled, random, text) =>
      [`shuffled ${shuffled}`, `random ${random}`, `whole text ${text}`].join(" · "),
    randomBaseline: (random) => `random ${random}`,
    characteristic: "Stand out here",
    characteristicHint:
      "Tokens used more often in this group than its share of the text would give: log-odds with an informative " +
      "prior, in standard errors (z), at a false discovery rate of 5 % over all tokens and groups of the layer. The " +
      "small number is z.",
    noneStandOut: "No token stands out.",
    frequent: "Most frequent",
    z: (z, q, uses, all) => `z ${z}, ${q}, ${uses} of its ${all} uses in the text`,
    uses: (uses, all) => `${uses} of its ${all} uses in the text`,
    empty: "No token of this text chose this group.",
    tableTitle: "Categories by group",
    tableHelp:
      "Share of the group's tokens, and below it how many times its share of the text. Darker: more than its share. " +
      "Pale: could be shuffled groups (q above 0.05).",
    scheme: "Categories",
    category: "Category",
    inText: "Whole text",
    lift: (lift) => `${lift}×`,
    cell: (share, low, high, q) => `${share} (95 % interval ${low} to ${high}), ${q}`,
    rest: (count) =>
      `${count === "1" ? "1 category" : `${count} categories`} with less than 1 % of the text ` +
      `${count === "1" ? "is" : "are"} left out; the export has all.`,
    noTag: "untagged",
  },

  distances: {
    title: "Pairs kept by distance",
    help:
      "The share of causal token pairs the mask computes, by how far the two tokens lie apart, with the 95 % " +
      "interval.",
    scopes: { layer: "This layer", mean: "Mean over layers" },
    axis: "distance in tokens",
    share: "share of pairs kept",
    chart: "Pairs kept by distance, with interval and baselines",
    table: "The same numbers as a table",
    columns: {
      distance: "Distance",
      pairs: "Pairs",
      share: "Kept",
      interval: "95 % interval",
      shuffled: "Shuffled",
      random: "Random",
      window: "Window only",
    },
    bin: (first, last) => (first === last ? first : `${first}–${last}`),
    apart: (bin) => `${counted(bin, "token")} apart`,
    windowOnly: "window and sinks only",
    pairsTitle: (layer) => `Distant words in one group, layer ${layer}`,
    pairsHelp:
      "Nouns and names further apart than the window whose probabilities agree most. Affinity: the probability that " +
      "both tokens draw the same group. Press a row's button to select both tokens.",
    linksTitle: (layer) => `Strongest distant links of full attention, layer ${layer}`,
    linksHelp: "Single links beyond window and sinks, over all heads, by the probability full attention gives them.",
    linksMissing: "Full attention is not measured for this run; the overview has a button for it.",
    kinds: { kept: "Kept: a shared group or full attention", dropped: "Dropped: no shared group" },
    pairColumns: ["Tokens", "Apart", "Affinity", "Group"],
    fullHead: (head) => `${head} (full attention)`,
    linkColumns: ["Tokens", "Apart", "Probability", "Affinity", "Head"],
    nonePairs: "There are no such pairs in this layer.",
    noneLinks: "None in this layer.",
    choose: (query, key, at, from) => `Select ${query} (token ${at}) and ${key} (token ${from})`,
    label: (query, key) => `tokens ${query} and ${key}`,
    arrow: " ← ",
    more: (shown, all) => `The ${shown} strongest of ${all} stored.`,
  },

  agreement: {
    title: "Agreement with another run of the same tokens",
    help: "Two seeds, two centroid files or two settings: do they sort the tokens alike, layer by layer?",
    other: "Compare with",
    none:
      "There is no other run of exactly these tokens. Explore the same text with other centroids or another " +
      "setting, and this compares them.",
    choose: "Choose a run to compare with.",
    measures: { rand: "Adjusted Rand index", overlap: "Tokens in matched groups" },
    measureHints: {
      rand:
        "Over all pairs of tokens: do both runs put them together or apart? 1 is the same grouping, 0 a random one; " +
        "letters do not matter.",
      overlap:
        "The share of tokens in the same group once the groups of both runs are matched one to one as well as " +
        "possible. Random groupings are far above 0.",
    },
    show: "Show",
    chart: (name) => `${name} by layer`,
    columns: { layer: "Layer", value: "Value", interval: "95 % interval", shuffled: "Shuffled", random: "Random" },
    key: { value: "the two runs", shuffled: "shuffled groups", random: "random centroids and the other run" },
    summary: (mean, shuffled, above, layers) =>
      `Mean over layers ${mean}; shuffled groups give ${shuffled}. In ${above} of ${layers} layers the whole ` +
      "interval lies above shuffled groups.",
    option: (run) =>
      `${run.name || run.centroids_name}, top-k ${run.config.top_k}, window ${run.config.window}` +
      `${common.growing(run.config)}${common.exceptions(run.config)}, ${run.date}`,
  },
};
