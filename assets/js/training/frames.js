// @ts-check
// A film of a training: the groups, places and kept pairs of a text's tokens in every frame.
import { range } from "../core/arrays.js";
import { decodeBase64, expectLength } from "../core/bytes.js";
import { near, pairCode } from "../core/pair-rule.js";
/** @import { FilmPayload } from "../core/payloads.js" */

/** How the tokens of the pairs are ordered: as in the text, or by their group in the last frame. */
/** @typedef {"text" | "group"} FilmOrder */

export class Frames {
  /** @param {FilmPayload} film */
  constructor(film) {
    const { pieces, steps, num_groups: numGroups } = film;
    this.film = film;
    this.steps = steps;
    this.numTokens = pieces.length;
    const cells = steps.length * pieces.length;
    this.tops = expectLength("top", decodeBase64(film.top), cells);
    this.bytes = Math.ceil(numGroups / 8);
    this.membership = expectLength("membership", decodeBase64(film.membership), cells * this.bytes);
    this.places = expectLength("places", new Int16Array(decodeBase64(film.places).buffer), cells * 2);
  }

  /** Index of the last frame. */
  get last() {
    return this.steps.length - 1;
  }

  /**
   * @param {number} frame
   * @param {number} pos
   */
  top(frame, pos) {
    return this.tops[frame * this.numTokens + pos];
  }

  /**
   * Place of a token on the map while it moves from one frame to another.
   * @param {number} from
   * @param {number} to
   * @param {number} progress 0 to 1
   * @param {number} pos
   * @returns {[number, number]}
   */
  place(from, to, progress, pos) {
    const before = 2 * (from * this.numTokens + pos);
    const after = 2 * (to * this.numTokens + pos);
    /** @param {number} axis */
    const between = (axis) =>
      this.places[before + axis] + (this.places[after + axis] - this.places[before + axis]) * progress;
    return [between(0), between(1)];
  }

  /** Largest distance from the middle on each axis, over all frames. */
  get reach() {
    const reach = [1, 1];
    for (let at = 0; at < this.places.length; at += 1)
      reach[at % 2] = Math.max(reach[at % 2], Math.abs(this.places[at]));
    return reach;
  }

  /**
   * @param {number} frame
   * @param {number} a
   * @param {number} b
   */
  share(frame, a, b) {
    const first = (frame * this.numTokens + a) * this.bytes;
    const second = (frame * this.numTokens + b) * this.bytes;
    for (let byte = 0; byte < this.bytes; byte += 1)
      if ((this.membership[first + byte] & this.membership[second + byte]) !== 0) return true;
    return false;
  }

  /**
   * Why each pair is kept: `pairCode` of query × key in a square of all tokens, 0 where it is dropped or not causal.
   * @param {number} frame
   */
  mask(frame) {
    const { window, window_growth: growth, num_sinks: sinks, sliding_window: sliding } = this.film;
    const codes = new Uint8Array(this.numTokens * this.numTokens);
    const reach = sliding ?? this.numTokens;
    for (let query = 0; query < this.numTokens; query += 1)
      for (let key = Math.max(0, query - reach + 1); key <= query; key += 1)
        codes[query * this.numTokens + key] = pairCode(
          this.share(frame, query, key),
          query - key <= near(window, query, growth ?? undefined),
          key < sinks,
        );
    return codes;
  }

  /**
   * Tokens in the order of the picture.
   * @param {FilmOrder} order
   */
  order(order) {
    const tokens = range(this.numTokens);
    if (order === "text") return tokens;
    return tokens.sort((a, b) => this.top(this.last, a) - this.top(this.last, b) || a - b);
  }

  /**
   * Tokens in each group.
   * @param {number} frame
   */
  sizes(frame) {
    const sizes = new Array(this.film.num_groups).fill(0);
    for (let pos = 0; pos < this.numTokens; pos += 1) sizes[this.top(frame, pos)] += 1;
    return sizes;
  }

  /**
   * Tokens whose group is another than in the frame before.
   * @param {number} frame
   */
  changed(frame) {
    if (frame === 0) return 0;
    return range(this.numTokens).filter((pos) => this.top(frame, pos) !== this.top(frame - 1, pos)).length;
  }
}
