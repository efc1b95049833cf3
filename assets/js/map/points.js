// @ts-check
// Positions of centroids and group means on the map, and which points are selected.
import { range } from "../core/arrays.js";
import { groupLabel } from "../core/labels.js";
import { cssColour } from "../core/theme.js";
/** @import { MapPayload } from "../core/payloads.js" */
/** @import { Selection } from "../core/selection.js" */
/** @import { App } from "../shell/app.js" */

/**
 * A centroid, or the mean of a group's `count` tokens.
 * @typedef {{ group: number, x: number, y: number, count?: number }} Diamond
 */

/**
 * null selects nothing and dims nothing; an empty list dims all.
 * @param {number[]} tokens
 * @param {Selection | null} selection
 */
export function selectedPoints(tokens, selection) {
  if (selection === null) return null;
  /** @type {number[]} */
  const points = [];
  tokens.forEach((pos, i) => selection.has(pos) && points.push(i));
  return points;
}

/**
 * Centroids live where the routing vectors of their layer do.
 * @param {MapPayload} map
 */
export const centroids = (map) => map.centroid_x.map((x, group) => ({ group, x, y: map.centroid_y[group] }));

/**
 * All layers together have no space with centroids: there a group stands at the mean of its tokens' places.
 * @param {App} given
 * @param {MapPayload} map
 */
export function groupMeans({ run, layerIndex }, map) {
  const sums = range(run.numGroups).map((group) => ({ group, count: 0, x: 0, y: 0 }));
  map.positions.forEach((pos, i) => {
    const sum = sums[run.top(layerIndex, pos)];
    sum.count += 1;
    sum.x += map.x[i];
    sum.y += map.y[i];
  });
  return sums
    .filter(({ count }) => count > 0)
    .map(({ group, count, x, y }) => ({ group, count, x: x / count, y: y / count }));
}

/**
 * Annotations, because text of a trace would lie beneath the points that WebGL draws.
 * @param {App} app
 * @param {Diamond[]} diamonds
 */
export function diamondLetters(app, diamonds) {
  return diamonds.map(({ group, x, y }) => ({
    x,
    y,
    text: groupLabel(group),
    showarrow: false,
    captureevents: false,
    font: { size: 13, weight: 700, color: cssColour(app.root, "text") },
  }));
}
