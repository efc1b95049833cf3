// @ts-check
// The layout of the flow chart: token counts between layers, positions of blocks, shapes of bands.
import { range } from "../core/arrays.js";
/** @import { Run } from "../core/run.js" */

/** A group of a layer. @typedef {{ group: number, count: number, height: number, y: number, node?: Element }} Block */
/**
 * A layer: its blocks by group, and the groups in the order in which they are drawn.
 * @typedef {{ layer: number, blocks: Block[], order: number[], x: number, scale: number, place: string }} Column
 */
/**
 * Token counts between two layers, by group and group.
 * @typedef {{ from: number, to: number, counts: Uint32Array }} Flow
 */
/**
 * The tokens that move from one group to another.
 * @typedef {{ flow: Flow, from: number, to: number, count: number, height: number, x0: number, x1: number, y0: number,
 *   y1: number, chosen?: Element }} Band
 */

export const HEIGHT = 440;

const TOP = 28;

const GAP = 6; // at most; many groups stand closer

const GAPS = 0.3; // of the height, at most

export const BLOCK = 26;

const MARGIN = 4;

/**
 * @param {Run} run
 * @param {number} from
 * @param {number} to
 * @param {Uint32Array | null} [positions]
 */
export function countFlow(run, from, to, positions = null) {
  const counts = new Uint32Array(run.numGroups * run.numGroups);
  const total = positions === null ? run.numTokens : positions.length;
  for (let i = 0; i < total; i += 1) {
    const pos = positions === null ? i : positions[i];
    counts[run.top(from, pos) * run.numGroups + run.top(to, pos)] += 1;
  }
  return counts;
}

/**
 * Blocks of the first layer stand in the order of their letters; those of the next ones where their tokens come from.
 * @param {Run} run
 * @param {number[]} layers
 * @param {Flow[]} flows
 * @param {number} width
 * @returns {Column[]}
 */
export function place(run, layers, flows, width) {
  const room = HEIGHT - TOP - MARGIN;
  const gaps = Math.max(1, run.numGroups - 1);
  const gap = Math.min(GAP, (GAPS * room) / gaps);
  const scale = (room - gap * (run.numGroups - 1)) / run.numTokens;
  /** @type {Column[]} */
  const columns = [];
  layers.forEach((layer, i) => {
    const counts = new Uint32Array(run.numGroups);
    for (let pos = 0; pos < run.numTokens; pos += 1) counts[run.top(layer, pos)] += 1;
    const order = i === 0 ? range(run.numGroups) : orderAfter(columns[i - 1], flows[i - 1].counts, counts);
    const blocks = range(run.numGroups).map((group) => ({
      group,
      count: counts[group],
      height: counts[group] * scale,
      y: 0,
    }));
    let y = TOP;
    for (const group of order) {
      blocks[group].y = y;
      if (counts[group] > 0) y += blocks[group].height + gap;
    }
    const x = layers.length === 1 ? 0 : ((width - BLOCK) * i) / (layers.length - 1);
    columns.push({
      layer,
      blocks,
      order,
      x,
      scale,
      place: i === 0 ? "first" : i === layers.length - 1 ? "last" : "inner",
    });
  });
  return columns;
}

/**
 * @param {Column} before
 * @param {Uint32Array} flow
 * @param {Uint32Array} counts
 */
function orderAfter(before, flow, counts) {
  const groups = counts.length;
  const centre = range(groups).map((to) => {
    let sum = 0;
    for (let from = 0; from < groups; from += 1)
      sum += flow[from * groups + to] * (before.blocks[from].y + before.blocks[from].height / 2);
    return counts[to] > 0 ? sum / counts[to] : Infinity;
  });
  return range(groups).sort((a, b) => centre[a] - centre[b] || a - b);
}

/**
 * @param {{ x0: number, x1: number, y0: number, y1: number }} given
 * @param {number} from
 * @param {number} to
 */
export function bandPath({ x0, x1, y0, y1 }, from, to) {
  const middle = (x0 + x1) / 2;
  return `M${x0},${y0 + from}C${middle},${y0 + from} ${middle},${y1 + from} ` +
    `${x1},${y1 + from}L${x1},${y1 + to}C${middle},${y1 + to} ${middle},${y0 + to} ${x0},${y0 + to}Z`;
}
