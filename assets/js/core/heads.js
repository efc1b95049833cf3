// @ts-check
// Heads of a layer that share a setting: which of them a view shows, and their words.
import { sum } from "./arrays.js";
import { el } from "./dom.js";
import { format } from "./format.js";
import { heads as text } from "../strings/heads.js";
/** @import { ConfigPayload, LayerPayload, PartPayload } from "./payloads.js" */

/** How layers number heads. @typedef {{ parts: Pick<PartPayload, "heads" | "query_heads">[] }[]} Numbered */

/**
 * How many heads of the run one that a layer numbers is. Heads of a run, as in `App.head` and the address, are query
 * heads where some layer numbers these, else key-value heads; a layer by itself may number either.
 * @param {Numbered} layers of the run
 * @param {Numbered[number]["parts"]} parts of the layer
 */
function runHeadsPerHead(layers, parts) {
  const isFiner = !parts[0].query_heads && layers.some((layer) => layer.parts[0].query_heads);
  return isFiner ? (sharedBy({ layers }) ?? 1) : 1;
}

/**
 * The first head of the run that a head is which a layer numbers.
 * @param {Numbered} layers of the run
 * @param {Numbered[number]["parts"]} parts of the layer
 * @param {number} head of the layer
 */
export const runHead = (layers, parts, head) => head * runHeadsPerHead(layers, parts);

/**
 * The part of a layer with a head; without one the first that has groups.
 * @param {Numbered} layers of the run
 * @param {PartPayload[]} parts of the layer
 * @param {number | null} head of the run
 */
export function partOf(layers, parts, head) {
  const own = head === null ? null : Math.floor(head / runHeadsPerHead(layers, parts));
  const named = parts.findIndex((part) => own !== null && part.heads.includes(own));
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
 * The part of a layer with a query head; parts may number key-value heads, which as many query heads share.
 * @template {Pick<PartPayload, "heads">} T
 * @param {T[]} parts
 * @param {number} head
 * @param {number} count of query heads in the layer
 */
export function partOfQueryHead(parts, head, count) {
  const shared = count / sum(parts.map((part) => part.heads.length));
  return parts.find((part) => part.heads.includes(Math.floor(head / shared))) ?? parts[0];
}

/**
 * Whether layers or heads have settings of their own.
 * @param {Pick<ConfigPayload, "budget">} config
 */
export const hasBudget = ({ budget }) => budget !== undefined && budget.length > 0;

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
 * What the heads of a layer execute: one setting where they are alike, else that of each part.
 * @param {PartPayload[]} parts
 * @param {{ window_growth?: readonly number[] }} config
 */
export function layerWords(parts, config) {
  const settings = parts.length === 1 ? [settingWords(parts[0])] : parts.map(partTitle);
  const growth = parts.every(({ full }) => full) ? null : growthWords(config);
  return text.settingTitle([...settings, growth].filter((words) => words !== null).join("; "));
}

/**
 * Whether a part has the setting that heads without an exception have.
 * @param {PartPayload} part
 * @param {ConfigPayload} config
 */
export const isUsual = (part, config) => !part.full && part.top_k === config.top_k && part.window === config.window;

/**
 * Heads of a part by what they have from the run's settings, not from the budget; that follows another top-k or window.
 * @typedef {{ topK: boolean, window: boolean, heads: number }} Following
 */

/**
 * Query heads that share a key-value head; null where no layer tells.
 * @param {{ layers: Numbered }} run
 */
function sharedBy({ layers }) {
  const counts = [true, false].map((query) => {
    const layer = layers.find(({ parts }) => parts[0].query_heads === query);
    return layer ? sum(layer.parts.map((part) => part.heads.length)) : 0;
  });
  return counts[0] > 0 && counts[1] > 0 ? counts[0] / counts[1] : null;
}

/**
 * What the heads of a part without full attention follow, most heads first. An exception that names only a top-k leaves
 * the window to the settings, and the other way round.
 * @param {{ config: ConfigPayload, layers: LayerPayload[] }} run
 * @param {LayerPayload} layer
 * @param {PartPayload} part
 * @returns {Following[]}
 */
export function following(run, layer, part) {
  const { budget = [], top_k: topK, window } = run.config;
  const entries = budget.filter((entry) => entry.layer === layer.layer);
  const shared = part.query_heads ? sharedBy(run) : 1;
  /** @type {(head: number) => typeof entries[number] | undefined} */
  const exception = (head) =>
    entries.find((entry) => part.query_heads && entry.query_head === head) ??
    entries.find((entry) => shared !== null && entry.head === Math.floor(head / shared)) ??
    entries.find((entry) => (entry.head ?? entry.query_head ?? null) === null);
  /** @type {Map<string, Following>} */
  const found = new Map();
  for (const head of part.heads.length > 0 ? part.heads : [0]) {
    const own = exception(head);
    const follows = {
      topK: part.top_k === topK && (own?.top_k ?? null) === null,
      window: part.window === window && (own?.window ?? null) === null,
    };
    const key = JSON.stringify(follows);
    found.set(key, { ...follows, heads: (found.get(key)?.heads ?? 0) + 1 });
  }
  return [...found.values()].sort((a, b) => b.heads - a.heads);
}

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
