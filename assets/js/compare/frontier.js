// @ts-check
// Geometry of the chart of cost against loss: the frontier of best points, and the placement of labels.

/** A box in pixels. @typedef {{ left: number, right: number, top: number, bottom: number }} Box */
/** A point in pixels, its error bar from top to bottom, and its label.
 * @typedef {{ x: number, y: number, top: number, bottom: number, words: string }} LabelledPoint */

const MOST_COVERED = 0.2; // of a label by what lies under it

/**
 * Points that no other beats in both numbers, by rising cost.
 * @param {[number, number][]} points
 */
export function frontier(points) {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const best = [];
  for (const point of sorted) if (best.length === 0 || point[1] < best[best.length - 1][1]) best.push(point);
  return best;
}

/**
 * @param {Box} a
 * @param {Box} b
 */
const overlap = (a, b) =>
  Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) *
  Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));

/**
 * For points {x, y, top, bottom, words} in pixels, bars from top to bottom: the side (Plotly's name) on which each
 * label covers least of the points, their bars, `taken` boxes and the labels before it; null where it has no room at
 * all.
 * @param {LabelledPoint[]} points
 * @param {Box[]} occupied
 * @param {number} letter
 * @returns {(string | null)[]}
 */
export const labelSides = (points, occupied, letter) => {
  const boxes = [
    ...occupied,
    ...points.flatMap(({ x, y, top, bottom }) => [
      { left: x - 6, right: x + 6, top: y - 6, bottom: y + 6 },
      { left: x - 2, right: x + 2, top, bottom },
    ]),
  ];
  return points.map(({ x, y, words }) => {
    const wide = letter * words.length;
    /** @type {Record<string, number>} */
    const columns = { right: x + 7, left: x - 7 - wide, center: x - wide / 2 };
    /** @type {Record<string, number>} */
    const rows = { middle: y - 6, top: y - 20, bottom: y + 8 };
    const sides = [
      "middle right",
      "middle left",
      "top right",
      "bottom right",
      "top left",
      "bottom left",
      "top center",
      "bottom center",
    ].map((name) => {
      const [row, column] = name.split(" ");
      const box = { left: columns[column], right: columns[column] + wide, top: rows[row], bottom: rows[row] + 12 };
      const covered = boxes.reduce((sum, other) => sum + overlap(box, other), 0) + (box.left < 0 ? -box.left * 12 : 0);
      return { name, box, covered };
    });
    const best = sides.reduce((least, side) => (side.covered < least.covered ? side : least));
    if (best.covered > MOST_COVERED * wide * 12) return null;
    boxes.push(best.box);
    return best.name;
  });
};
