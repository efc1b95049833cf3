// @ts-check
// Matches of a plain text or a regular expression in the whole text.

/** First and last token of a match. @typedef {[number, number]} Hit */

const SLOW = 3000; // ms after which a regular expression is given up

const WORKER = `onmessage = ({ data }) => {
  const bounds = [];
  for (const hit of data.text.matchAll(new RegExp(data.source, data.flags))) {
    if (hit[0].length > 0) bounds.push(hit.index, hit.index + hit[0].length);
  }
  postMessage(bounds);
};`;

/**
 * Start and end of every match, one after the other. A pattern may never end, so it runs in a worker.
 * @param {string} source
 * @param {string} flags
 * @param {string} whole
 * @returns {Promise<number[]>}
 */
export function matches(source, flags, whole) {
  new RegExp(source, flags); // throws a SyntaxError here, where it can be distinguished from a slow one
  const url = URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" }));
  const worker = new Worker(url);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("slow")), SLOW);
    worker.onmessage = ({ data }) => {
      clearTimeout(timer);
      resolve(data);
    };
    worker.onerror = () => reject(new Error("slow"));
    worker.postMessage({ text: whole, source, flags });
  }).finally(() => {
    worker.terminate();
    URL.revokeObjectURL(url);
  });
}

/**
 * @param {string} words
 * @param {string} whole
 */
export function plainMatches(words, whole) {
  const pattern = new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
  return [...whole.matchAll(pattern)].flatMap((hit) => [hit.index, hit.index + hit[0].length]);
}

/**
 * First and last token of every match; matches come in order, so one pass is enough.
 * @param {number[]} bounds start and end of every match, one after the other
 * @param {ArrayLike<number>} starts where each token begins in the text
 * @returns {Hit[]}
 */
export function tokenHits(bounds, starts) {
  /** @type {Hit[]} */
  const hits = [];
  let pos = 0;
  /** @param {number} offset */
  const advance = (offset) => {
    while (pos + 1 < starts.length && starts[pos + 1] <= offset) pos += 1;
    return pos;
  };
  for (let i = 0; i < bounds.length; i += 2) hits.push([advance(bounds[i]), advance(bounds[i + 1] - 1)]);
  return hits;
}
