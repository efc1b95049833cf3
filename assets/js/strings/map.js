// @ts-check
// Labels and sentences of the Map view.
import { counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const map = {
  scope: "Tokens of",
  scopes: { layer: "This layer", all: "All layers" },
  colourBy: "Colour by",
  colourings: {
    group: "Group",
    class: "Word class",
    confidence: "Confidence",
    entropy: "Entropy",
    path: "Path",
    loss: "Loss difference",
    position: "Position",
  },
  noValue: "no value",
  drag: "Drag to",
  drags: { pan: "Move", lasso: "Lasso" },
  names: "Names",
  density: "Density",
  near: (piece, pos, layer, count) =>
    `Most like “${piece}” (token ${pos}) in ${layer === null ? "all layers" : `layer ${layer}`}, of ${count} tokens:`,
  nearSubject: "most like",
  nearHint:
    "Cosine similarity in the full space, 1 for the same direction: of the routing vectors of one layer, or of the " +
    "square roots of the group probabilities of all layers. The map may tear neighbours apart; this list does not.",
  nearLabel: (piece, pos, similarity) => `Select “${piece}”, token ${pos}, similarity ${similarity}`,
  showInText: "Show in the text",
  waiting: "Placing the tokens…",
  refining: (count) =>
    `A quick map (PCA) is shown while UMAP places ${count} tokens. The first time this takes from seconds to a ` +
    "minute; then it is stored.",
  refineFailed: (message) => `UMAP could not be made; the quick map (PCA) stays. ${message}`,
  lassoed: (count) => (count === "1" ? "1 token on the map" : "tokens lassoed on the map"),
  layerCaption: (method, parts) =>
    `${method}: ${parts}. Tokens close together were routed alike in this layer; diamonds are the group centroids.`,
  allCaption: (method, parts, layer) =>
    `${method}: ${parts}. Tokens close together have similar group probabilities in all layers; the colours are ` +
    `those of layer ${layer}. A diamond is no centroid: it stands at the mean place of one group’s tokens in layer ` +
    `${layer}, and moves with the layer.`,
  allHint:
    "Routing vectors of different layers live in spaces of their own and cannot be placed together. So each token " +
    "is one point here, made of its group probabilities in every layer (their square roots, one after the other); " +
    "two tokens are near when their probabilities overlap much, averaged over the layers.",
  allSubject: "all layers",
  use: "Press a point to select its token, or draw a lasso around several.",
  drawn: (shown, total) =>
    shown === total ? `all ${total} tokens` : `${shown} of ${total} tokens drawn, evenly spaced`,
  seed: (seed) => `seed ${seed}`,
  neighbours: (count) => `${count} neighbours`,
  minDist: (value) => `minimum distance ${value}`,
  metric: (name) => `${name} metric`,
  trustworthiness: (value) => `Trustworthiness ${value}`,
  trustworthinessSubject: "trustworthiness",
  trustworthinessHint:
    "From 0 to 1: how far points that are neighbours on this map are also neighbours in the full space, over at " +
    "most 2,000 tokens. Above 0.9 near points can be trusted; below 0.8 do not read meaning into single neighbours. " +
    "Distances between far clusters never mean much.",
  centroids: "Centroids",
  means: "Means of the groups’ tokens",
  mean: (label, layer, count) =>
    `Mean of group ${label}’s tokens in layer ${layer} (${counted(count, "token")})`,
  meanDrawn: (label, layer, count) =>
    `Mean of group ${label}’s tokens in layer ${layer} (${count} of them ${count === "1" ? "is" : "are"} drawn)`,
  selectionDrawn: (shown, all) => `${shown} of ${all} selected tokens are drawn here.`,
  centroid: (label) => `Centroid of group ${label}`,
  plotLabel: (layer) => `Map of the tokens in the routing space of layer ${layer}`,
  allLabel: "Map of the tokens by their group probabilities in all layers",
  scales: {
    confidence: "Confidence of the most probable group",
    entropy: "Entropy of the group probabilities, nats",
    path: "Path: how far a token stays with its companions from layer to layer",
    loss: "Loss with Focus − with full attention, nats (cut at ±1)",
    position: "Position in the text",
  },
};
