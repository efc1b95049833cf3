// @ts-check
// Labels and sentences about heads of a layer that differ: a run's budget, and the choice of heads.
import { counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const heads = {
  full: "full attention",
  setting: (topK, window) => (topK === 0 ? `no groups, window ${window}` : `top-k ${topK}, window ${window}`),
  noneInFull: "no group: full attention",
  noneUsed: "no group: these heads use none",
  noneLeft: "no group",
  growth: (first, last) => `windows grow from token ${first} to ${last}`,
  heads: (numbers, query = false) =>
    `${query ? "query " : ""}${numbers.length === 1 ? `head ${numbers[0]}` : `heads ${numbers.join(", ")}`}`,
  part: (which, setting) => `${which}: ${setting}`,
  kept: (part, percent) => `${part}, ${percent} of pairs kept`,
  choice: "Shown",
  choiceHint:
    "The budget gives the heads of this layer different settings, so they compute different pairs. Heads here are " +
    "key-value heads, each with the query heads that share it, unless query heads are named: then those differ, too.",
  mean: "Mean over the heads of this layer, which differ.",
  differ: "heads differ",
  fullByBudget: "full attention by budget",
  fullLayers: (layers) =>
    `${layers.length === 1 ? "Layer" : "Layers"} ${layers.join(", ")}: full attention by budget.`,
  markOf: (layer, words) => `Layer ${layer}: ${words}`,
  counts: (layers, numbers, query = false) =>
    [
      layers > 0 ? counted(layers, "layer") : "",
      numbers > 0 ? `${numbers} ${query ? "query " : ""}${numbers === 1 ? "head" : "heads"}` : "",
    ]
      .filter(Boolean)
      .join(" and "),
  chip: (full, other) => {
    const words = [full ? `${full} in full` : "", other ? `${other} set apart` : ""].filter(Boolean);
    return `budget: ${words.join(", ") || "no head differs here"}`;
  },
  layers: (numbers) => (numbers.length === 1 ? `layer ${numbers[0]}` : `layers ${numbers.join(", ")}`),
  many: (count, query, layers) => `${count} ${query ? "query " : ""}heads in ${layers} layers`,
  ofLayer: (layer, which) => `layer ${layer}, ${which}`,
  settingTitle: (setting) => `${setting[0].toUpperCase()}${setting.slice(1)}`,
  budgetHint:
    "Layers and heads to which the centroid file or the run gave a setting of their own. All others follow the " +
    "setting on the left. Sparsity shows the heads of each layer.",
  budgetNone: "Every head has the setting of this run anyway.",
};
