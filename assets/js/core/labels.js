// @ts-check
// Labels of groups and tokens.

/**
 * A, B, … Z, AA, AB, …
 * @param {number} group
 * @returns {string}
 */
export const groupLabel = (group) => {
  const letter = String.fromCharCode(65 + (group % 26));
  return group < 26 ? letter : groupLabel(Math.floor(group / 26) - 1) + letter;
};

/**
 * Whether a token holds part of a character only; its bytes stand in place of text, as in ‹E6 98›.
 * @param {string} piece
 */
export const isBytes = (piece) => /^‹[0-9A-F]{2}(?: [0-9A-F]{2})*›$/.test(piece);

/** @type {Record<string, string>} */
const NAMED_ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t", " ": "␣" };

/**
 * Spaces, line ends and invisible characters become visible marks.
 * @param {string} piece
 * @returns {string}
 */
export const visibleToken = (piece) => (isBytes(piece) ? piece : marked(piece));

/** @param {string} piece */
const marked = (piece) =>
  piece.replace(/[\s\p{Cc}\p{Cf}]/gu, (char) => {
    if (char in NAMED_ESCAPES) return NAMED_ESCAPES[char];
    return `\\u${/** @type {number} */ (char.codePointAt(0)).toString(16).padStart(4, "0")}`;
  });

/**
 * For running text on one line: only line ends and tabs would break it.
 * @param {string} text
 * @returns {string}
 */
export const oneLine = (text) => text.replace(/\r?\n/g, "↵").replace(/\t/g, "⇥");
