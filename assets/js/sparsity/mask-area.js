// @ts-check
// The visible part of a mask as ranges of queries and keys: fitting, zooming and moving it.

/** First and last token. @typedef {[number, number]} Span */
/** Queries and keys. @typedef {{ rows: Span, keys: Span }} MaskArea */

export const CLOSEST = 8; // tokens a side; closer in there is nothing more to see

/**
 * The area in whole tokens inside the text; null when it is all of it.
 * @param {MaskArea} area
 * @param {number} numTokens
 * @returns {MaskArea | null}
 */
export function fitArea({ rows, keys }, numTokens) {
  const last = numTokens - 1;
  /** @param {Span} span @returns {Span} */
  const within = ([low, high]) => {
    const size = Math.min(last, Math.max(CLOSEST - 1, Math.round(high - low)));
    const first = Math.max(0, Math.min(last - size, Math.round(low)));
    return [first, first + size];
  };
  const fitted = { rows: within(rows), keys: within(keys) };
  const everything = Object.values(fitted).every(([low, high]) => low === 0 && high === last);
  return everything ? null : fitted;
}

/**
 * The area scaled around a point, which is given as fractions of the picture.
 * @param {MaskArea} area
 * @param {number} factor
 * @param {{ x: number, y: number }} point
 * @returns {MaskArea}
 */
export function zoomedArea({ rows, keys }, factor, { x, y }) {
  /** @param {Span} span @param {number} share @returns {Span} */
  const scaled = ([low, high], share) => {
    const centre = low + (high - low) * share;
    return [centre - (centre - low) * factor, centre + (high - centre) * factor];
  };
  return { rows: scaled(rows, y), keys: scaled(keys, x) };
}

/**
 * The area moved by shares of its size.
 * @param {MaskArea} area
 * @param {number} down
 * @param {number} right
 * @returns {MaskArea}
 */
export function movedArea({ rows, keys }, down, right) {
  /** @param {Span} span @param {number} by @returns {Span} */
  const moved = ([low, high], by) => [low + (high - low) * by, high + (high - low) * by];
  return { rows: moved(rows, down), keys: moved(keys, right) };
}

/**
 * A square around a rectangle, because cells are as wide as they are high.
 * @param {MaskArea} area
 * @returns {MaskArea}
 */
export function squareArea({ rows, keys }) {
  const size = Math.max(rows[1] - rows[0], keys[1] - keys[0]) / 2;
  /** @param {Span} span @returns {Span} */
  const around = ([low, high]) => [Math.ceil((low + high) / 2 - size), Math.floor((low + high) / 2 + size)];
  return { rows: around(rows), keys: around(keys) };
}
