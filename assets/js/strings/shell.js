// @ts-check
// Labels and sentences of the frame around the views: tabs, header, cards and the layer control.
import { tokensInWords } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const shell = {
  tabs: {
    tokens: "Tokens",
    groups: "Groups",
    map: "Map",
    sparsity: "Sparsity",
    compare: "Compare",
    statistics: "Statistics",
  },
  tabsLabel: "Views of this run",
  empty: {
    title: "No run to show yet",
    body:
      "Paste a text, choose a model and its centroids, and start a run. The groups of every token in every layer, " +
      "the attention mask and the comparison with full attention then appear here.",
  },
  deleted: {
    title: "The run of this link was deleted. It can be brought back for 30 days after.",
    restore: "Bring it back",
    newest: "Open the newest run",
  },
  loadingRun: "Loading the run…",
  badPayload: (detail) => `This run cannot be shown: ${detail}.`,
  form: { open: "Another text", fold: "Hide the form" },
  answer: {
    label: "What this run shows",
    focus: "Focus computed ",
    kept: (share, otherLayers) => `${share} of the token pairs${otherLayers ? " in the layers it runs in" : ""}`,
    and: " and ",
    worse: "predicts worse",
    better: "predicts better",
    same: "predicts as well",
    unknown: "cannot be judged by one token",
    numbers: (mean, interval) => ` (${mean} nats a token, ${interval})`,
    few: (count, all) => `${count} of ${all} tokens`,
    fewMeans: (count) =>
      `${count === 1 ? " loses" : " lose"} as much as the whole text does on balance; the others even out`,
    ofThem: ". Of these, ",
    repeats: (count) => `${count} stood in the text before`,
    within: (window) => `the last ${window} tokens`,
    withinGrowing: (window, last) => `the window, which grows from ${window} to ${last} tokens`,
    repeatsMeans: (within, share, base) => `, but not within ${within} (${share}, where ${base} of all tokens do).`,
    fewLabel: "tokens that lose as much as the text",
    repeatsLabel: "of these, repeated from farther than the window",
    collapsed: (count) =>
      `In ${count === 1 ? "one layer" : `${count} layers`} one group has more than half of the tokens`,
    collapsedMeans: ": there the groups hardly tell this text's tokens apart.",
  },
  header: {
    untitled: "Untitled text",
    details: "Details",
    detailsLabel: "Details of this run",
    link: {
      copy: "Copy link",
      hint: "Copies the address: run, view, layer and selection are in it",
      copied: "Copied",
      notCopied: "Not copied: take it from the address bar",
    },
    tokens: tokensInWords,
    centroids: (name) => `centroids ${name}`,
    trainedOn: (texts) => `trained on ${texts}`,
    trainedOnHint:
      "What the centroids were trained on, as their file says. On other text groups are less even and cost more.",
    groups: (count) => `K = ${count} groups`,
    topK: (k) => `top-k ${k}`,
    window: (size) => `window ${size}`,
    seed: (seed) => `seed ${seed}`,
    timing: {
      chip: (repeats) => `timing goes on: measured ${["", "once", "twice"][repeats] || `${repeats} times`} so far`,
      hint:
        "Everything but the times is final. Both kinds of pass are being repeated, so times and their ranges still " +
        "change. Stop, in the form, ends that; what was measured until then is kept.",
    },
    factsSubject: "how it was run",
    factsHint: (device, dtype, backend) =>
      `${device} is what it ran on: the processor (cpu) or a graphics card (cuda, mps). ${dtype} is the format the ` +
      `model's numbers have (dtype): bfloat16 takes half the memory of float32 and rounds more. ${backend} is the ` +
      "program part that computed Focus attention (backend): all of them compute the same pairs, at different " +
      "speed. The seed fixes what is drawn at random.",
    settingsHint:
      "K is the number of groups a layer sorts tokens into. Each token joins its top-k groups. A token sees the " +
      "tokens of its groups, the nearest ones (the window), and the first few tokens of the text (the sinks). With " +
      "causal assignment, a token's group depends on no later token.",
  },
  cards: {
    arrow: " → ",
    perplexity: {
      label: "Perplexity",
      hint:
        "How surprised the model is by the text; lower is better. Left: full attention. Right: the same model with " +
        "the Focus mask. Read it together with the pairs kept and the largest group: a mask that keeps nearly " +
        "everything costs nothing and saves nothing.",
      detail: (percent) => percent,
    },
    pairs: {
      label: "Pairs kept",
      hint:
        "The share of token pairs a layer still computes under Focus, averaged over the layers that Focus runs in. " +
        "Full attention is 100 %; the best possible speed-up of attention is one divided by this share.",
      slidingHint:
        "The share of token pairs a layer still computes under Focus, averaged over the layers that Focus runs in. " +
        "Layers of this model have sliding windows of their own: pairs beyond them count as dropped, though full " +
        "attention does not compute them either. So one divided by this share is more than the speed-up can be.",
      detail: (low, high) => `${low} to ${high} a layer`,
    },
    dominance: {
      label: "Largest group",
      hint: (even) =>
        "The share of tokens in a layer's largest group, averaged over the layers, and the layer with the most. " +
        `Groups of equal size would have ${even} each. If one group holds nearly all tokens the groups have ` +
        "collapsed, and heads that use them are close to full attention.",
      detail: (worst, layer) => `${worst} in layer ${layer}`,
    },
    attention: {
      label: "Attention time",
      hint:
        "Time spent in attention on this text, all layers, median over repeats. Left: full attention. Right: Focus, " +
        "with finding the groups. Below 1× Focus is quicker; above 1× it is slower. The pass is the whole model, " +
        "with all that both have in common. Compare has the stages and how far the repeats lie apart.",
      detail: (ratio, pass) => `${ratio}, pass ${pass}`,
    },
  },
  layer: {
    label: "Layer",
    previous: "Previous layer",
    next: "Next layer",
    valueText: (layer, index, count, more) => `Layer ${layer}, ${index} of ${count}${more ? `, ${more}` : ""}`,
    position: (first, last) => `of ${first}–${last}`,
    summary: (kind, kept, dominance, more) =>
      `${kind.replace(/Attention$/, "")} attention · ${kept} of pairs kept · largest group ${dominance}` +
      `${more ? ` · ${more}` : ""}`,
  },
};
