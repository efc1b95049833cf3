// @ts-check
// Labels and sentences of the help sheet: the words of the page, and the keyboard.
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const keys = {
  open: "Keyboard and help",
  title: "Help",
  wordsTitle: "What the words mean",
  words: [
    ["Token", "A piece of text that the model reads as one unit: a word, a part of one, a space or a sign."],
    ["Pair", "A token (query) and one before it (key) that it may look at. Full attention computes all."],
    ["Group", "What a layer sorts tokens into. Far tokens see each other only inside one. Letters are per layer."],
    ["Centroids", "The learned points that decide the groups: a token joins the nearest. A file holds them all."],
    ["Top-k", "How many groups a token joins."],
    ["Window", "How far apart two tokens may be and still see each other whatever their groups."],
    ["Sinks", "The first few tokens of a text, which all may see: models rest spare attention there."],
    [
      "Pairs kept",
      "The share of all pairs that is computed under the mask. One divided by it bounds the speed-up, unless layers " +
      "slide: pairs beyond a layer’s own window count as dropped.",
    ],
    ["Largest group", "The share of tokens in it. Even groups have one K-th each; one group of all saves nothing."],
    ["Assignment", "Causal: groups depend on no later token. Sinkhorn: they are balanced over the whole text."],
    ["Budget", "Settings of single layers and heads, such as full attention where grouping costs most."],
    ["Backend", "What computes the mask: fused (one kernel), decomposed (attention by group), masked."],
    ["Perplexity", "How surprised the model is by the text; lower is better. Its logarithm is the mean loss in nats."],
    ["Shuffled groups", "The same groups dealt to tokens at random: what sizes alone would give."],
    ["Random centroids", "Groups of centroids that nobody trained: what the model's own vectors give."],
    ["95 % interval", "Where the number would lie in 95 of 100 samples of such text."],
  ],
  keyboardTitle: "Keyboard",
  paper: "The method’s paper",
  paperLink: "https://arxiv.org/abs/2604.03260",
  docs: "Every number is defined in the project’s docs folder: explorer.md, statistics.md, backends.md.",
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
