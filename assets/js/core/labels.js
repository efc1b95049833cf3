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
 * Spaces, line ends and invisible characters become visible marks; an accent that begins a token gets a circle to stand
 * on.
 * @param {string} piece
 * @returns {string}
 */
export const visibleToken = (piece) => (isBytes(piece) ? piece : marked(piece));

/** @param {string} piece */
const marked = (piece) =>
  piece
    .replace(/[\s\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]/gu, (char) => {
      if (char in NAMED_ESCAPES) return NAMED_ESCAPES[char];
      const code = /** @type {number} */ (char.codePointAt(0)).toString(16);
      return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
    })
    .replace(/^\p{M}/u, "\u25cc$&");

/**
 * For running text on one line: only line ends and tabs would break it.
 * @param {string} text
 * @returns {string}
 */
export const oneLine = (text) => text.replace(/\r?\n/g, "↵").replace(/\t/g, "⇥");
