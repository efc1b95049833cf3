// @ts-check
// Characters that several tokens share: bytes of neighbouring tokens put together again.
import { isBytes } from "./labels.js";

/** Stands on a token in which no character begins. */
const CONTINUES = "\u00b7";

/** @param {string} piece */
const bytesOf = (piece) =>
  piece
    .slice(1, -1)
    .split(" ")
    .map((byte) => parseInt(byte, 16));

/** @param {number} byte */
const begins = (byte) => (byte & 0xc0) !== 0x80;

/**
 * What each token shows: its text; of bytes, the characters that begin in them, or a dot. Bytes that are no characters
 * stay as they are.
 * @param {string[]} pieces
 * @returns {string[]}
 */
export function shownPieces(pieces) {
  const shown = [...pieces];
  for (let first = 0; first < pieces.length; first += 1) {
    if (!isBytes(pieces[first])) continue;
    let end = first + 1;
    while (end < pieces.length && isBytes(pieces[end])) end += 1;
    const tokens = pieces.slice(first, end).map(bytesOf);
    const characters = decode(tokens.flat());
    if (characters !== null)
      tokens.forEach((bytes, i) => {
        shown[first + i] = characters.splice(0, bytes.filter(begins).length).join("") || CONTINUES;
      });
    first = end - 1;
  }
  return shown;
}

/**
 * @param {number[]} bytes
 * @returns {string[] | null}
 */
function decode(bytes) {
  try {
    return [...new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes))];
  } catch {
    return null;
  }
}

/**
 * The text of some tokens, a shared character with its first one.
 * @param {string[]} pieces
 * @param {string[]} shown `shownPieces` of them
 * @param {number} from
 * @param {number} to
 */
export const textOf = (pieces, shown, from, to) => {
  const parts = [];
  for (let pos = from; pos < to; pos += 1) if (!isContinued(pieces, shown, pos)) parts.push(shown[pos]);
  return parts.join("");
};

/**
 * @param {string[]} pieces
 * @param {string[]} shown
 * @param {number} pos
 */
export const isContinued = (pieces, shown, pos) => shown[pos] === CONTINUES && pieces[pos] !== CONTINUES;
