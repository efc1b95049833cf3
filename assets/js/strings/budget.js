// @ts-check
// Labels and sentences of the sliders that try other settings.
/** @import { Child } from "../core/types.js" */
import { counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const budget = {
  title: "Try another budget",
  help:
    "Move a slider: the pairs that the setting would keep are counted at once, in every layer, and the picture below " +
    "shows them, as do lines in “Pairs kept in every layer”. Nothing is run for that.",
  layersHint: "Upright lines: the budget that is tried below.",
  topK: "Groups of each token (top-k)",
  window: "Window",
  sinks: "Sinks",
  reset: "The run's settings",
  groups: (count, all) => `${count} of ${all} groups`,
  tokens: (count) => counted(count, "token"),
  waiting: "Loading the groups…",
  /** @type {(layer: number, share: Child, than: string) => Child[]} */
  layer: (layer, share, than) => [`Layer ${layer} keeps `, share, ` of its pairs${than}.`],
  /** @type {(share: Child, than: string, ratio: string, slides: boolean) => Child[]} */
  layers: (share, than, ratio, slides) => [
    "All layers with groups keep ",
    share,
    than,
    slides
      ? ". Pairs beyond a layer's own sliding window, which full attention does not compute either, count as dropped."
      : `: full attention computes ${ratio} as many pairs.`,
  ],
  than: (share) => `, with the run's settings ${share}`,
  oneLayer: "Of a text this long only the layer on screen is counted.",
  kinds: { measured: "measured", interpolated: "interpolated, not measured", unknown: "not measured" },
  measured: (delta, interval, ran) => `Loss against full attention ${delta} nats a token (${interval})${ran}.`,
  ran: (share) => `; the pass that measured it kept ${share} of the pairs`,
  /** @type {(delta: string, ends: string[][]) => string} */
  interpolated: (delta, ends) =>
    `Loss against full attention about ${delta} nats a token, taken to change evenly with the logarithm of the ` +
    `window between ${ends.map(([window, loss]) => `window ${window} (${loss})`).join(" and ")}, which were measured.`,
  unknown: "What this setting costs was not measured on this text, nor anything on both sides of it.",
  otherSinks: "What another number of sinks costs was not measured on this text.",
  measure: "Measure settings in Compare",
  note:
    "The count is exact for the groups that this run found. With another setting later layers read other inputs and " +
    "may choose other groups, so a run with it keeps about as much, not exactly: where a setting was measured, what " +
    "it kept then stands beside it.",
  byHand: "This run was changed by hand. Other settings can be tried on the run that it came from.",
};
