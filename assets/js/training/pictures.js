// @ts-check
// The two pictures of a training's film: the map of its tokens and the mask of their pairs.
import { channels, groupColour } from "../core/colours.js";
import { el } from "../core/dom.js";
import { KEPT_CAUSES } from "../core/pair-rule.js";
import { cssColour, themeOf } from "../core/theme.js";
/** @import { FilmOrder, Frames } from "./frames.js" */

const SIDE = 720; // pixels of the map's picture, shown at half of that or less

const MARGIN = 24;

const DOT = 7;

const STRIP = 8; // cells of the strips that show each token's group

export class FilmMap {
  /**
   * @param {HTMLElement} root
   * @param {string} label
   */
  constructor(root, label) {
    this.root = root;
    const attributes = { class: "fx-film-map", role: "img", "aria-label": label, "data-testid": "fx-film-map" };
    this.node = el("canvas", { ...attributes, width: SIDE, height: SIDE });
  }

  /**
   * @param {Frames} frames
   * @param {number} from
   * @param {number} to
   * @param {number} progress 0 to 1
   */
  paint(frames, from, to, progress) {
    const context = /** @type {CanvasRenderingContext2D} */ (this.node.getContext("2d"));
    const theme = themeOf(this.root);
    const [across, up] = frames.reach;
    const middle = SIDE / 2;
    const room = middle - MARGIN;
    context.clearRect(0, 0, SIDE, SIDE);
    context.strokeStyle = cssColour(this.root, "bg"); // a rim, or dots that cover each other look like one
    for (let pos = 0; pos < frames.numTokens; pos += 1) {
      const [x, y] = frames.place(from, to, progress, pos);
      context.beginPath();
      context.arc(middle + (room * x) / across, middle - (room * y) / up, DOT, 0, 2 * Math.PI);
      context.fillStyle = groupColour(frames.top(progress < 0.5 ? from : to, pos), theme);
      context.fill();
      context.stroke();
    }
  }
}

export class FilmMask {
  /**
   * @param {HTMLElement} root
   * @param {string} label
   */
  constructor(root, label) {
    this.root = root;
    const attributes = { class: "fx-arranged", role: "img", "aria-label": label, "data-testid": "fx-film-mask" };
    this.node = el("canvas", attributes);
    /** Pairs that the last picture showed. */
    this.kept = 0;
  }

  /**
   * @param {Frames} frames
   * @param {number} frame
   * @param {FilmOrder} order
   */
  paint(frames, frame, order) {
    const { numTokens } = frames;
    const side = numTokens + STRIP;
    const theme = themeOf(this.root);
    const causes = KEPT_CAUSES.map((cause) => channels(cssColour(this.root, `cause-${cause}`)));
    const groups = Array.from({ length: frames.film.num_groups }, (_, group) => channels(groupColour(group, theme)));
    this.node.width = this.node.height = side;
    this.node.dataset.order = order;
    const context = /** @type {CanvasRenderingContext2D} */ (this.node.getContext("2d"));
    const image = context.createImageData(side, side);
    const codes = frames.mask(frame);
    const tokens = frames.order(order);
    this.kept = 0;
    tokens.forEach((query, row) => {
      const y = row + STRIP;
      tokens.forEach((key, column) => {
        const code = codes[query * numTokens + key];
        if (code === 0) return;
        this.kept += 1;
        image.data.set([...causes[code - 1], 255], 4 * (y * side + column + STRIP));
      });
      const colour = [...groups[frames.top(frame, query)], 255];
      for (let depth = 0; depth < STRIP - 2; depth += 1) {
        image.data.set(colour, 4 * (y * side + depth));
        image.data.set(colour, 4 * (depth * side + y));
      }
    });
    context.putImageData(image, 0, 0);
  }
}
