// @ts-check
// Labels and sentences of the guided tour.
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const tour = {
  label: "Guided tour",
  step: (number, count) => `${number} of ${count}`,
  next: "Next",
  back: "Back",
  skip: "Skip the tour",
  done: "Start exploring",
  steps: {
    text: [
      "Start with a text",
      "Paste your own or pick a sample, then press Explore. The model reads it twice: with full attention, and with " +
      "Focus, which lets a token attend only to its group and its neighbours.",
    ],
    cards: [
      "What it costs and saves",
      "Perplexity says how much worse or better the predictions get, pairs kept how much work is left. Read both " +
      "together. Every small question mark explains a term.",
    ],
    views: [
      "One run, several views",
      "The text, its groups, their map, the pairs that are kept, and the comparison with full attention. What you " +
      "choose in one view is highlighted in all.",
    ],
    layer: [
      "Layer by layer",
      "Every layer of the model sorts the tokens anew. Move the slider, or press [ and ], and watch the colours " +
      "change.",
    ],
    tokens: [
      "Colours are groups",
      "Tokens of one colour have the same most probable group in this layer. Heads that use groups let them attend " +
      "to each other also when they are far apart. Hover over a token for its details.",
    ],
    more: [
      "Train, upload, keep",
      "Train centroids on your own text, look inside centroid files, and name, tag and compare your runs. Press ? " +
      "at any time for the keyboard.",
    ],
  },
};
