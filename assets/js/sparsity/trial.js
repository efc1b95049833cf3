// @ts-check
// A run's mask under settings it was not run with: the groups are its own, the rule is another.
import { mean, range, sum } from "../core/arrays.js";
import { following } from "../core/heads.js";
import { GroupOrder } from "./recount.js";
/** @import { GroupOrdersPayload } from "../core/payloads.js" */
/** @import { Following } from "../core/heads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { ArrangedRun } from "./arrangement.js" */

/** @typedef {{ topK: number, window: number, sinks: number }} Settings */

const WINDOWS = [0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

const MOST_SINKS = 16;

export class Trial {
  /** @param {Run} run */
  constructor(run) {
    this.run = run;
    const { top_k: topK, window, num_sinks: sinks } = run.config;
    /** @type {Settings} */
    this.own = { topK, window, sinks };
    /** Replaced as a whole, never changed. */
    this.settings = { ...this.own };
    /** @type {{ settings: Settings, shares: number[] } | null} */
    this.counted = null;
    /** By layer. @type {Map<number, GroupOrder>} */
    this.orders = new Map();
    const windows = WINDOWS.filter((one) => one < run.numTokens);
    this.windows = [...new Set([...windows, window])].sort((a, b) => a - b);
    this.mostSinks = Math.max(MOST_SINKS, sinks);
  }

  get isOwn() {
    const { own, settings } = this;
    return own.topK === settings.topK && own.window === settings.window && own.sinks === settings.sinks;
  }

  /** @param {GroupOrdersPayload} answer */
  take(answer) {
    const { run } = this;
    for (const [layer, bytes] of Object.entries(answer.orders))
      this.orders.set(Number(layer), new GroupOrder(bytes, run.numTokens, run.numGroups, answer.fixed[layer]));
  }

  /** @param {number} layerIndex */
  order(layerIndex) {
    return this.orders.get(this.run.layerIds[layerIndex]);
  }

  /**
   * What heads of a part would execute; null for full attention. What a head has from the budget it keeps.
   * @param {number} layerIndex
   * @param {number} part
   * @param {Following} follows - the part's first where it has several
   */
  rule(layerIndex, part, follows = this.following(layerIndex, part)[0]) {
    const { config, layers } = this.run;
    const { sliding_window: sliding, parts } = layers[layerIndex];
    const own = parts[part];
    if (own.full) return null;
    const { topK, window, sinks } = this.settings;
    return {
      topK: follows.topK ? topK : (own.top_k ?? topK),
      window: follows.window ? window : own.window,
      sinks,
      sliding,
      growth: config.window_growth,
    };
  }

  /**
   * @param {number} layerIndex
   * @param {number} part
   */
  following(layerIndex, part) {
    const layer = this.run.layers[layerIndex];
    return following(this.run, layer, layer.parts[part]);
  }

  /**
   * The share of a layer's pairs that is kept, a mean over its heads; null while its groups are not here.
   * @param {number} layerIndex
   * @returns {number | null}
   */
  kept(layerIndex) {
    const { run } = this;
    const layer = run.layers[layerIndex];
    if (this.isOwn) return layer.retained_pairs;
    const order = this.order(layerIndex);
    if (order === undefined) return null;
    const all = (run.numTokens * (run.numTokens + 1)) / 2;
    const shares = layer.parts.flatMap((part, number) =>
      this.following(layerIndex, number).map((follows) => {
        const rule = this.rule(layerIndex, number, follows);
        const share = rule === null ? part.retained_pairs : order.sets(rule.topK).kept(rule) / all;
        return [share, follows.heads];
      }),
    );
    return sum(shares.map(([share, heads]) => share * heads)) / sum(shares.map(([, heads]) => heads));
  }

  /**
   * Of every layer, counted once for the settings; null while the groups of one are not here.
   * @returns {number[] | null}
   */
  keptOfLayers() {
    if (this.counted?.settings === this.settings) return this.counted.shares;
    const shares = range(this.run.numLayers).map((layerIndex) => this.kept(layerIndex));
    if (shares.some((share) => share === null)) return null;
    this.counted = { settings: this.settings, shares: /** @type {number[]} */ (shares) };
    return this.counted.shares;
  }

  /** The mean over layers; null while the groups of one are not here. */
  meanKept() {
    const shares = this.keptOfLayers();
    return shares === null ? null : mean(shares);
  }

  /**
   * The run as pictures of its pairs need it, under these settings; a layer whose groups are not here as it was run.
   * @param {number} layerIndex
   * @returns {ArrangedRun}
   */
  pictured(layerIndex) {
    const { run } = this;
    const order = this.order(layerIndex);
    if (this.isOwn || order === undefined) return run;
    const rules = run.layers[layerIndex].parts.map((_, part) => this.rule(layerIndex, part));
    const sets = rules.map((rule) => (rule === null ? null : order.sets(rule.topK)));
    const layers = run.layers.map((layer) => ({
      sliding_window: layer.sliding_window,
      parts: layer.parts.map((part, number) => ({ window: rules[number]?.window ?? part.window })),
    }));
    return {
      numTokens: run.numTokens,
      config: { ...run.config, num_sinks: this.settings.sinks },
      layers,
      top: (layer, pos) => run.top(layer, pos),
      shareGroup: (_, pos, other, part) => sets[part]?.share(pos, other) ?? true,
    };
  }
}
