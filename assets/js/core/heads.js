// @ts-check
// Heads of a layer that share a setting: which of them a view shows, and their words.
import { sum } from "./arrays.js";
import { el } from "./dom.js";
import { format } from "./format.js";
import { heads as text } from "../strings/heads.js";
/** @import { ConfigPayload, LayerPayload, PartPayload } from "./payloads.js" */

/**
 * The part of a layer with a head; without one the first that has groups.
 * @param {PartPayload[]} parts
 * @param {number | null} head
 */
export function partOf(parts, head) {
  const named = parts.findIndex((part) => head !== null && part.heads.includes(head));
  if (named >= 0) return named;
  return Math.max(
    0,
    parts.findIndex((part) => !part.full),
  );
}

/**
 * Heads of a layer, of the kind that its parts number.
 * @param {PartPayload[]} parts
 */
export const headCount = (parts) => sum(parts.map((part) => part.heads.length));

/**
 * How windows grow, where they do.
 * @param {{ window_growth?: readonly number[] }} config
 */
export const growthWords = ({ window_growth: growth }) =>
  growth ? text.growth(format.count(growth[0]), format.count(growth[1])) : null;

/** @param {PartPayload} part */
export const settingWords = (part) => (part.full ? text.full : text.setting(part.top_k, part.window));

/** @param {PartPayload} part */
export const partTitle = (part) => text.part(text.heads(part.heads, part.query_heads), settingWords(part));

/**
 * What the heads of a layer execute and keep, a line for each setting.
 * @param {PartPayload[]} parts
 */
export const partRows = (parts) =>
  parts.map((part) =>
    el("span", { class: "fx-heads-line" }, text.kept(partTitle(part), format.percent(part.retained_pairs))),
  );

/**
 * Whether a part has the setting that heads without an exception have.
 * @param {PartPayload} part
 * @param {ConfigPayload} config
 */
export const isUsual = (part, config) => !part.full && part.top_k === config.top_k && part.window === config.window;

/**
 * Whether some head attends fully.
 * @param {{ parts: PartPayload[] }[]} layers
 */
export const someFull = (layers) => layers.some(({ parts }) => parts.some((part) => part.full));

/**
 * The shortest window of any head: within as many tokens the mask drops nothing.
 * @param {{ config: { window: number }, layers: { parts: PartPayload[] }[] }} run
 */
export const shortestWindow = ({ config, layers }) => {
  const windows = layers.flatMap(({ parts }) => parts.filter((part) => !part.full).map((part) => part.window));
  return windows.length > 0 ? Math.min(...windows) : config.window;
};

/**
 * Layers and heads with one setting that is not the run's.
 * @typedef {object} BudgetGroup
 * @property {string} setting
 * @property {boolean} full
 * @property {number[]} layers
 * @property {{ layer: number, heads: number[], query: boolean }[]} heads
 */

/**
 * What a budget made of layers and heads, by setting: full attention first.
 * @param {{ config: ConfigPayload, layers: LayerPayload[] }} run
 * @returns {BudgetGroup[]}
 */
export function budgetGroups({ config, layers }) {
  /** @type {Map<string, BudgetGroup>} */
  const groups = new Map();
  /** @param {string} setting @param {boolean} full */
  const group = (setting, full) => {
    const found = groups.get(setting) ?? { setting, full, layers: [], heads: [] };
    groups.set(setting, found);
    return found;
  };
  for (const { layer, parts } of layers) {
    for (const part of parts) {
      if (isUsual(part, config)) continue;
      const { layers: whole, heads } = group(settingWords(part), part.full);
      if (parts.length === 1) whole.push(layer);
      else heads.push({ layer, heads: part.heads, query: part.query_heads });
    }
  }
  return [...groups.values()].sort((a, b) => Number(b.full) - Number(a.full));
}

const NAMED = 6; // layers whose heads a line names; of more it says the numbers

/** @param {BudgetGroup["heads"]} heads of one setting */
function headWords(heads) {
  if (heads.length <= NAMED) return heads.map((one) => text.ofLayer(one.layer, text.heads(one.heads, one.query)));
  const count = sum(heads.map((one) => one.heads.length));
  return [text.many(count, heads.some((one) => one.query), heads.length)];
}

/**
 * The layers and heads of a budget, a line for each setting.
 * @param {BudgetGroup[]} groups
 */
export const budgetRows = (groups) =>
  groups.map(({ setting, layers, heads }) =>
    el(
      "span",
      { class: "fx-heads-line" },
      el("strong", {}, text.settingTitle(setting)),
      ": ",
      [
        ...(layers.length > 0 ? [text.layers(layers)] : []),
        ...headWords(heads),
      ].join("; "),
    ),
  );

/**
 * How many layers and heads are in full and set apart; in query heads where some layer tells them apart.
 * @param {{ config: ConfigPayload, layers: LayerPayload[] }} run
 */
export function budgetChip({ config, layers }) {
  const numbers = layers.map(({ parts }) => headCount(parts));
  const finest = Math.max(...numbers);
  const query = layers.some(({ parts }) => parts[0].query_heads);
  /** @param {boolean} full */
  const counts = (full) => {
    let [whole, heads] = [0, 0];
    layers.forEach(({ parts }, i) => {
      const chosen = parts.filter((part) => part.full === full && !isUsual(part, config));
      if (chosen.length > 0 && parts.length === 1) whole += 1;
      else heads += (sum(chosen.map((part) => part.heads.length)) * finest) / numbers[i];
    });
    return text.counts(whole, heads, query);
  };
  return text.chip(counts(true), counts(false));
}
