// @ts-check
// Characters that several tokens share: bytes of neighbouring tokens put together again.
import { isBytes } from "./labels.js";

/** Stands on a token in which no character begins. */
const CONTINUES = "\u00b7";

const DECODER = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @param {string} piece */
const bytesOf = (piece) =>
  piece
    .slice(1, -1)
    .split(" ")
    .map((byte) => parseInt(byte, 16));

/**
 * What each token shows: its text; of bytes, the characters that begin in them, or a dot. Bytes that are no characters
 * stay as they are, and with them the characters that their tokens have a part of.
 * @param {string[]} pieces
 * @returns {string[]}
 */
export function shownPieces(pieces) {
  const shown = [...pieces];
  for (let first = 0; first < pieces.length; first += 1) {
    if (!isBytes(pieces[first])) continue;
    let end = first + 1;
    while (end < pieces.length && isBytes(pieces[end])) end += 1;
    shownBytes(pieces.slice(first, end).map(bytesOf)).forEach((text, i) => {
      if (text !== null) shown[first + i] = text;
    });
    first = end - 1;
  }
  return shown;
}

/**
 * Of neighbouring tokens of bytes what each shows; null for those that stay as they are.
 * @param {number[][]} tokens
 * @returns {(string | null)[]}
 */
function shownBytes(tokens) {
  const owners = tokens.flatMap((bytes, i) => bytes.map(() => i)); // the token of each byte
  /** @type {(string | null)[]} */
  const texts = tokens.map(() => "");
  const characters = charactersOf(tokens.flat());
  /** @param {Character} character */
  const spread = ({ text, from, to }) => {
    const parts = owners.slice(from, to);
    if (text === null || parts.some((i) => texts[i] === null)) for (const i of parts) texts[i] = null;
  };
  characters.forEach(spread);
  [...characters].reverse().forEach(spread);
  for (const { text, from } of characters) if (texts[owners[from]] !== null) texts[owners[from]] += text ?? "";
  return texts.map((text) => (text === "" ? CONTINUES : text));
}

/** Its bytes go from `from` to before `to`; no text is a byte that belongs to none. */
/** @typedef {{ text: string | null, from: number, to: number }} Character */

/**
 * @param {number[]} bytes
 * @returns {Character[]}
 */
function charactersOf(bytes) {
  const characters = [];
  for (let from = 0; from < bytes.length; ) {
    const to = from + (bytes[from] < 0xc0 ? 1 : bytes[from] < 0xe0 ? 2 : bytes[from] < 0xf0 ? 3 : 4);
    const text = decode(bytes.slice(from, to));
    characters.push({ text, from, to: text === null ? from + 1 : to });
    from = /** @type {Character} */ (characters.at(-1)).to;
  }
  return characters;
}

/**
 * @param {number[]} bytes of one character
 * @returns {string | null}
 */
function decode(bytes) {
  try {
    return DECODER.decode(Uint8Array.from(bytes));
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
