// @ts-check
// The selected tokens, which every view highlights.
import { range } from "./arrays.js";
import { format } from "./format.js";
import { groupLabel } from "./labels.js";
import { common } from "../strings/common.js";
/** @import { Run } from "./run.js" */

/**
 * How tokens were selected. `kind` is token, range, group, lasso, block, row, search or tokens; a group has its layer
 * number and index; `label` is shown in the bar above the views.
 * @typedef {{ kind: string, label: string, layer?: number, group?: number }} Origin
 */

// `origin` says how it was chosen: kind ("token", "range", "group", "lasso", "block", "row", "search", "tokens") and,
// for a group, its layer and index; `label` is shown in the bar above the views.
export class Selection {
  /**
   * @param {Iterable<number>} positions
   * @param {Origin} origin
   */
  constructor(positions, origin) {
    this.positions = Uint32Array.from(positions).sort();
    this.origin = origin;
    /** @type {Set<number> | null} */
    this.set = null;
  }

  get size() {
    return this.positions.length;
  }

  /** @param {number} pos */
  has(pos) {
    if (this.set === null) this.set = new Set(this.positions);
    return this.set.has(pos);
  }

  /**
   * The same tokens, however they were chosen.
   * @param {Selection | null} other
   */
  equals(other) {
    if (!other || other.size !== this.size) return false;
    return this.positions.every((pos, i) => pos === other.positions[i]);
  }

  // Runs of neighbouring tokens: [first, last].
  ranges() {
    const ranges = [];
    for (const pos of this.positions) {
      const last = ranges[ranges.length - 1];
      if (last && last[1] === pos - 1) last[1] = pos;
      else ranges.push([pos, pos]);
    }
    return ranges;
  }
}

/** @param {number} pos */
export const selectToken = (pos) =>
  new Selection([pos], { kind: "token", label: common.selection.token(format.count(pos)) });

/**
 * @param {number} first
 * @param {number} last
 */
export const selectRange = (first, last) => {
  const [low, high] = first < last ? [first, last] : [last, first];
  const label = common.selection.range(format.count(low), format.count(high));
  return new Selection(
    range(high - low + 1).map((i) => low + i),
    { kind: "range", label },
  );
};

/**
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} group
 */
export const selectGroup = (run, layerIndex, group) => {
  const positions = range(run.numTokens).filter((pos) => run.top(layerIndex, pos) === group);
  const layer = run.layerIds[layerIndex];
  return new Selection(positions, {
    kind: "group",
    layer,
    group,
    label: common.selection.group(groupLabel(group), layer),
  });
};

/**
 * @param {Iterable<number>} positions
 * @param {string} kind
 * @param {string} label
 */
export const selectTokens = (positions, kind, label) => new Selection(positions, { kind, label });

/**
 * How many of the selected tokens each group of a layer has.
 * @param {Run} run
 * @param {number} layerIndex
 * @param {Selection | null} selection
 */
export const selectedPerGroup = (run, layerIndex, selection) => {
  const hits = new Uint32Array(run.numGroups);
  if (selection !== null) for (const pos of selection.positions) hits[run.top(layerIndex, pos)] += 1;
  return hits;
};
