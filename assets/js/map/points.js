// @ts-check
// Positions of centroids and group means on the map, and which points are selected.
import { range } from "../core/arrays.js";
import { groupName } from "../core/group-names.js";
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

const LETTER = 6.5; // pixels of a letter of a name, about

const LINE = 18; // pixels of its line

const BELOW = 26; // pixels from the middle of a diamond to the name below it

/**
 * What a group's tokens have in common, where they lie: the largest group first, and none over another.
 * @param {App} app
 * @param {MapPayload} map
 * @param {{ width: number, height: number }} size of the plot in pixels
 */
export function groupTitles(app, map, size) {
  const all = map.centroid_x.length === 0; // the diamonds stand there too
  const span = (/** @type {number[]} */ values) =>
    values.reduce((high, value) => Math.max(high, value), -Infinity) -
      values.reduce((low, value) => Math.min(low, value), Infinity) || 1;
  const pixels = Math.min(size.width / span(map.x), size.height / span(map.y)) * 0.7; // of one scale, with a margin
  /** @type {{ x: number, y: number, half: number }[]} */
  const placed = [];
  return groupMeans(app, map)
    .sort((a, b) => b.count - a.count)
    .flatMap(({ group, x, y }) => {
      const name = groupName(app.run, app.layerIndex, group);
      const box = { x: x * pixels, y: y * pixels, half: (LETTER * name.length) / 2 };
      const covers = placed.some(
        (other) => Math.abs(other.x - box.x) < other.half + box.half && Math.abs(other.y - box.y) < LINE,
      );
      if (!name || covers) return [];
      placed.push(box);
      return [
        {
          x,
          y,
          text: name,
          yshift: all ? -BELOW : 0,
          showarrow: false,
          captureevents: false,
          font: { size: 12, color: cssColour(app.root, "text") },
          bgcolor: cssColour(app.root, "surface"),
          opacity: 0.9,
        },
      ];
    });
}
