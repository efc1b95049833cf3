// @ts-check
// Line breaking from measured widths, so that the height of the whole text is known before anything is drawn.

/**
 * What breaking lines needs of a piece: `head` before its first line end, the number of line ends, the rest after the
 * last one, widths in pixels, and whether a line may break before or after it.
 * @typedef {{ head: string, ends: number, tail: string, before: boolean, after: boolean, width: number,
 *   tailWidth: number }} Piece
 */
/**
 * A line: the tokens from `first` to before `end` of those shown; `tail` is the rest of the token `tailPos` after a
 * line end; a soft line continues a full one; `pos` is its first token.
 * @typedef {{ first: number, end: number, tail: string, tailPos: number, soft: boolean, pos: number }} Line
 */

const TOKEN_GAP = 1;

const GAP_WIDTH = 28;

const NEWLINE_WIDTH = 15;

const SLACK = 0.985; // joined scripts and kerning make a line a little longer than the sum of its tokens

const BREAKS_AFTER = /[\s\-–—/\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]$/u;

const BREAKS_BEFORE = /^[\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]/u;

export class Measure {
  /** @param {Element} node */
  constructor(node) {
    const style = getComputedStyle(node);
    this.context = document.createElement("canvas").getContext("2d");
    /** @type {CanvasRenderingContext2D} */ (this.context).font =
      `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    /** @type {Map<string, Piece>} */
    this.cache = new Map();
  }

  /**
   * Of a piece: width of what stands on its line, line ends in it, what follows the last one, where lines may break.
   * @param {string} piece
   * @returns {Piece}
   */
  of(piece) {
    let breaks = this.cache.get(piece);
    if (breaks === undefined) {
      const parts = piece.split("\n");
      const ends = parts.length - 1;
      const head = parts[0].replace(/\r$/, "");
      const tail = ends ? parts[ends] : "";
      breaks = {
        head,
        ends,
        tail,
        before: BREAKS_BEFORE.test(piece),
        after: BREAKS_AFTER.test(piece),
        width: this.width(head) + ends * NEWLINE_WIDTH + TOKEN_GAP,
        tailWidth: tail ? this.width(tail) : 0,
      };
      this.cache.set(piece, breaks);
    }
    return breaks;
  }

  /** @param {string} text */
  width(text) {
    return /** @type {CanvasRenderingContext2D} */ (this.context).measureText(text.replace(/\t/g, "        ")).width;
  }
}

/**
 * Lines of the tokens `shown`: first and end count in `shown`; `tail` is what the token `tailPos` has after a line end;
 * a soft line follows from a full one.
 * @param {string[]} pieces
 * @param {Uint32Array} shown
 * @param {{ of: (piece: string) => Piece }} measure
 * @param {number} width
 * @param {number} extra
 * @returns {Line[]}
 */
export const breakLines = (pieces, shown, measure, width, extra) => {
  /** @type {Line[]} */
  const lines = [];
  const room = width * SLACK;
  let line = { first: 0, end: 0, tail: "", tailPos: -1, soft: false };
  let x = 0;
  let word = 0;
  let wordX = 0;
  /** @param {number} end @param {boolean} soft */
  const close = (end, soft) => {
    lines.push({ ...line, end, pos: line.first < shown.length ? shown[line.first] : line.tailPos });
    line = { first: end, end, tail: "", tailPos: -1, soft };
  };
  for (let i = 0; i < shown.length; i += 1) {
    const piece = measure.of(pieces[shown[i]]);
    const jumped = i > 0 && shown[i] !== shown[i - 1] + 1;
    if (i === line.first || jumped || piece.before || measure.of(pieces[shown[i - 1]]).after) [word, wordX] = [i, x];
    const step = piece.width + extra + (jumped ? GAP_WIDTH : 0);
    if (x + step > room && i > line.first) {
      const at = word > line.first ? word : i;
      close(at, true);
      x = at === i ? 0 : x - wordX;
      [word, wordX] = [at, 0];
    }
    x += step;
    if (piece.ends === 0) continue;
    close(i + 1, false);
    for (let blank = 1; blank < piece.ends; blank += 1) close(i + 1, false);
    [line.tail, line.tailPos] = [piece.tail, shown[i]];
    x = piece.tailWidth;
    [word, wordX] = [i + 1, x];
  }
  if (line.first < shown.length || line.tail) close(shown.length, false);
  return lines;
};
