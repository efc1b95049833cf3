// @ts-check
// Labels and sentences of the Tokens view.
import { counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const tokens = {
  colourBy: "Colour by",
  colourings: /** @type {Record<string, string>} */ ({
    group: "Group",
    confidence: "Confidence",
    loss: "Loss difference",
  }),
  showLabels: "Show labels",
  fixedWidth: "Fixed width",
  textLabel: "The text, token by token. Use the arrow keys to move from token to token.",
  keyboardHelp: "Hover, tap or use the arrow keys for a token's details.",
  pageStatus: (first, last, total) => `Tokens ${first}–${last} of ${total}`,
  previousPage: "Previous page",
  nextPage: "Next page",
  pager: "Pages of the text",
  confidenceKey: (low) => [`unsure (${low})`, "certain (100 %)"],
  lossKey: ["Focus predicts better (−1 nat)", "worse (+1 nat)"],
  tooltip: {
    position: (pos, last) => `token ${pos} of 0 to ${last}`,
    memberOf: "Belongs to",
    probabilities: "Probability of each group",
    loss: "Loss",
    losses: (full, focus) => `full ${full}, Focus ${focus} nats`,
    difference: (value) => `(${value})`,
    noLoss: "none: nothing comes before the first token",
  },
};

/** @satisfies {Words} */
export const reading = {
  colourings: /** @type {Record<string, string>} */ ({
    group: "Group",
    confidence: "Confidence",
    entropy: "Entropy",
    loss: "Loss difference",
    path: "Path",
  }),
  colouringHints: /** @type {Record<string, string>} */ ({
    group:
      "Each token has the colour of its most probable group in this layer. Letters are given per layer: group A of " +
      "one layer has nothing to do with group A of another.",
    confidence: "The probability of the token's most probable group in this layer.",
    entropy:
      "How spread out the token's group probabilities are. None: one group has it all. Highest: every group is as " +
      "probable as any other.",
    loss:
      "Surprise of the model at this token with Focus, minus surprise with full attention, in nats. Above zero " +
      "Focus predicts it worse.",
    path:
      "Does the token stay with its companions from layer to layer? For every step to the next layer this takes the " +
      "share of its group that goes into the same next group, and averages over the steps. Dark tokens stay with the " +
      "same tokens; pale ones are among others in every layer.",
  }),
  groupKey: "most probable group",
  entropyKey: (high) => ["none", `highest (${high} nats)`],
  pathKey: (low, high) => [`among others in every layer (${low})`, `with the same tokens (${high})`],
  loadingLayer: "Loading this layer…",
  layerFailed: (message) => `This layer could not be loaded: ${message}`,
  help:
    "Click a token for what it may attend to. Drag, Shift+click or Shift+arrow selects a range, Ctrl+C copies it. " +
    "Arrow keys move, Home and End go to the ends of the text, Enter selects.",
  none: "No token passes the filter.",
  noneHelp: "Loosen or clear the filter to see the text again.",
  lineBreak: "line break",
  space: "space",
  spoken: (words, group) => `${words}, group ${group}`,
  selectedCount: (count) => `${count} selected`,
  hiddenGap: (count) => (count === "1" ? "1 token hidden" : `${count} tokens hidden`),

  search: {
    label: "Search the text",
    placeholder: "Search…",
    regex: "Regular expression",
    regexShort: "regex",
    previous: "Previous hit",
    next: "Next hit",
    status: (index, count) => `${index} of ${count}`,
    hits: (count) => counted(count, "hit"),
    hidden: (words, count) => `${words}, ${count} hidden by the filter`,
    none: "no hits",
    bad: "not a valid regular expression",
    slow: "takes too long; try a simpler pattern",
    selectAll: "Select all hits",
    selected: (words, count) => (count === "1" ? `1 hit for “${words}”` : `${count} hits for “${words}”`),
  },

  filter: {
    title: "Filter",
    active: (shown, total) => `Filter: ${shown} of ${total} tokens`,
    group: "Group",
    anyGroup: "any",
    kind: "Kind of word",
    anyKind: "any",
    kindSubject: "kind of word",
    kindHint:
      "From lists of English words and capital letters, without a parser: a word has its most frequent class. Text " +
      "in other languages falls mostly under content words, names and punctuation.",
    prediction: "Prediction",
    anyPrediction: "any",
    predictions: {
      changed: "changed",
      lost: "right with full attention alone",
      won: "right with Focus alone",
    },
    noPredictions: "This run was stored without predictions; explore the text again to have them.",
    from: "From token",
    to: "to",
    mode: "Other tokens",
    modes: { dim: "Dim", hide: "Hide" },
    select: "Select these tokens",
    selected: "tokens that pass the filter",
    clear: "Clear filter",
    kinds: {
      punctuation: "punctuation",
      whitespace: "white space",
      determiner: "determiner",
      preposition: "preposition",
      conjunction: "conjunction",
      pronoun: "pronoun",
      auxiliary: "auxiliary verb",
      function: "other function word",
      number: "number",
      name: "name",
      content: "content word",
      continuation: "rest of a word",
      other: "other",
    },
  },

  detail: {
    title: "This token",
    close: "Close",
    position: (pos, last, layer) => `token ${pos} of 0 to ${last}, layer ${layer}`,
    predictions: {
      title: "Predicted here",
      hint:
        "The five tokens that the model finds most probable at this place from what comes before it, with full " +
        "attention and with Focus, and their probabilities. The token of the text is marked; its rank counts the " +
        "whole vocabulary.",
      full: "Full attention",
      focus: "Focus",
      loading: "Loading the predictions…",
      none: "No prediction is stored for this token.",
      changed: "Focus changes the first choice.",
      same: "The first choice is the same.",
    },
    back: "May attend to",
    backTotal: (kept, all, share) => `${kept} of ${counted(all, "token")} up to here (${share}), itself included`,
    backHint:
      "The tokens this one may look back at in this layer, by the reason. It is the mask that was executed: near " +
      "within the window, a shared group, both, or one of the first tokens (sinks), which all may see. Marked above " +
      "the token.",
    forward: "May be attended to by",
    forwardTotal: (kept, all, share) =>
      all === "0" ? "nothing comes after it" : `${kept} of ${counted(all, "later token")} (${share})`,
    forwardHint: "The later tokens that may look at this one in this layer, by the reason. Marked below the token.",
    marks: "Line above: it may attend to these. Line below: these may attend to it.",
    ranges: "Which tokens",
    more: (count) => `, and ${counted(count, "more range")}`,
    select: "Select these tokens",
    selectedBack: (pos, layer) => `what token ${pos} may attend to in layer ${layer}`,
    selectedForward: (pos, layer) => `what may attend to token ${pos} in layer ${layer}`,
    groups: "Groups in this layer",
    loss: "Loss",
    path: "Path through the layers",
    pathHint:
      "The most probable group of this token in every layer; press a cell to go to that layer. A letter means " +
      "something only within its layer, so the line below tells how far the token keeps its companions.",
    pathCell: (layer, group, share) => `Layer ${layer}: group ${group}, with ${share} of the tokens`,
    consistency: (share, rank) =>
      `On average ${share} of its group moves to the same next group; ${rank} of the tokens keep company less.`,
  },
};

/** @satisfies {Words} */
export const legend = {
  title: "Groups",
  hint:
    "Click a group to highlight its tokens. Letters are given per layer: group A of one layer has nothing to do " +
    "with group A of another. Of each group: its share of the tokens, its confidence (the mean probability of the " +
    "group among the tokens in it), what its tokens have in common, and the most frequent ones.",
  confidence: (value) => `confidence ${value}`,
  confidenceTitle: "Mean probability of this group among the tokens in it",
  share: (value) => value,
  noTokens: "No token chose this group",
  times: (count) => (count === "1" ? "once" : `${count} times`),
};

/** @satisfies {Words} */
export const typing = {
  title: "Type a text and watch its groups",
  help:
    "With the model, centroids and settings of this run. A token's groups never depend on later tokens, so only what " +
    "is new is computed. Nothing is stored.",
  placeholder: "Start typing …",
  starting: "Loading the model …",
  took: (tokens, computed, whole) =>
    `${tokens === "1" ? "One token" : `${tokens} tokens`} computed in ${computed}; ${whole} until it is here.`,
  group: (label) => `group ${label}`,
  next: (words) => `Next, under Focus: ${words}`,
};
