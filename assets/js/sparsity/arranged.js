// @ts-check
// A picture of a layer's kept pairs that moves between the order of the text, the groups, and the work that is left.
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { channels, groupColour } from "../core/colours.js";
import { groupLabel } from "../core/labels.js";
import { KEPT_CAUSES } from "../core/pair-rule.js";
import { cssColour, themeOf } from "../core/theme.js";
import { choiceOf } from "../core/widgets.js";
import { KeptPairs, MOST_TOKENS } from "./arrangement.js";
import { causeSwatch } from "./causes.js";
import { pairs as pairsText, sparsity as sparsityText } from "../strings/sparsity.js";
/** @import { App } from "../shell/app.js" */
/** @import { Arrangement, Order } from "./arrangement.js" */
/** @import { BudgetTrial } from "./budget.js" */

const text = pairsText.arranged;

const CELLS = 420; // along each side, at most: counting them takes some 10 ms of a thousand tokens

const STRIP = 8; // cells of the strips that show each token's group

const MOVE_MS = 900;

const MOST_MOVING = 1_500_000; // pairs; more would not move smoothly

export class ArrangedMask {
  /**
   * @param {App} app
   * @param {BudgetTrial} budget whose settings are shown
   */
  constructor(app, budget) {
    this.app = app;
    this.budget = budget;
    /** @type {Order} */
    this.order = "text";
    /** @type {KeptPairs | null} */
    this.pairs = null;
    this.drawn = "";
    this.moving = 0;
    this.visible = false;
    this.canvas = el("canvas", {
      class: "fx-arranged",
      role: "img",
      "aria-label": text.title,
      "data-testid": "fx-arranged",
    });
    this.note = el("p", { class: "fx-help", role: "status", "data-testid": "fx-arranged-note" });
    this.legend = el("ul", { class: "fx-arranged-groups", "data-testid": "fx-arranged-groups" });
    this.node = el(
      "section",
      { class: "fx-arranged-part" },
      el("h3", { class: "fx-subtitle" }, text.title),
      el("p", { class: "fx-help" }, text.help),
      choiceOf(text.label, text.orders, this.order, (order) => this.choose(order)),
      el("div", { class: "fx-arranged-body" }, this.canvas, el("div", {}, this.note, this.legend)),
    );
    this.watch();
  }

  /** Nothing is counted until somebody sees it: of thousands of tokens that takes longer than the rest of the view. */
  watch() {
    const observer = new IntersectionObserver((entries) => {
      this.visible = entries[entries.length - 1].isIntersecting;
      if (this.visible && this.app.run) this.update();
    });
    observer.observe(this.node);
  }

  /** The layer's membership may still be on its way: the view is updated once it is here. */
  update() {
    const { run, layerIndex, part } = this.app;
    this.node.hidden = !run.hasLayer(layerIndex);
    if (this.node.hidden || !this.visible) return;
    const { trial } = this.budget;
    const pictured = trial.pictured(layerIndex);
    const rule = pictured === run ? "" : JSON.stringify(trial.settings);
    const shown = [run.info.run_id, layerIndex, part, themeOf(this.app.root), rule].join("/");
    if (this.drawn === shown) return;
    this.drawn = shown;
    this.pairs = new KeptPairs(pictured, layerIndex, part);
    this.updateLegend();
    this.show(this.pairs.arrangement(this.order));
  }

  /** @param {Order} order */
  choose(order) {
    const before = this.order;
    this.order = order;
    if (this.pairs === null) return;
    const [from, to] = [before, order].map((one) => /** @type {KeptPairs} */ (this.pairs).arrangement(one));
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still || this.pairs.count > MOST_MOVING) this.show(to);
    else this.move(from, to);
  }

  /**
   * @param {Arrangement} from
   * @param {Arrangement} to
   */
  move(from, to) {
    const start = performance.now();
    const move = (this.moving += 1);
    const step = () => {
      if (move !== this.moving) return;
      const progress = Math.min(1, (performance.now() - start) / MOVE_MS);
      if (progress === 1) {
        this.show(to);
        return;
      }
      this.paint(from, to, progress * progress * (3 - 2 * progress)); // slow at both ends
      requestAnimationFrame(step);
    };
    step();
  }

  /** @param {Arrangement} arrangement */
  show(arrangement) {
    this.moving += 1;
    this.paint(arrangement, arrangement, 1);
    this.describe();
  }

  describe() {
    const { run, layerIndex } = this.app;
    const { count, share, numTokens } = /** @type {KeptPairs} */ (this.pairs);
    const of = run.numTokens > MOST_TOKENS ? text.first(format.count(numTokens)) : text.all;
    const kept = text.kept(format.count(count), format.percent(share, 1), of, text.notes[this.order]);
    this.note.textContent = kept;
    this.canvas.setAttribute("aria-label", text.picture(run.layerIds[layerIndex], text.orders[this.order], kept));
    this.canvas.dataset.order = this.order;
  }

  updateLegend() {
    const { groups } = /** @type {KeptPairs} */ (this.pairs);
    const sizes = new Uint32Array(this.app.run.numGroups);
    for (const group of groups) sizes[group] += 1;
    const theme = themeOf(this.app.root);
    const causes = KEPT_CAUSES.map((cause) => el("li", {}, causeSwatch(cause), ` ${sparsityText.causes[cause]}`));
    const items = [...sizes].map((size, group) =>
      el(
        "li",
        {},
        el("span", { class: "fx-arranged-swatch", style: `background: ${groupColour(group, theme)}` }),
        `${groupLabel(group)} `,
        el("span", { class: "fx-muted" }, format.percent(size / groups.length, 0)),
      ),
    );
    this.legend.replaceChildren(...causes, el("li", { class: "fx-arranged-break" }, text.groups), ...items);
  }

  /**
   * @param {Arrangement} from
   * @param {Arrangement} to
   * @param {number} progress 0 to 1
   */
  paint(from, to, progress) {
    const pairs = /** @type {KeptPairs} */ (this.pairs);
    const tokens = Math.ceil(pairs.numTokens / CELLS); // cells of equal sides, or they would show as a pattern
    const size = Math.ceil(pairs.numTokens / tokens);
    const side = size + STRIP;
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.canvas.width = this.canvas.height = side;
    const image = context.createImageData(side, side);
    this.paintPairs(image, pairs.raster(from, to, progress, tokens), tokens ** 2, size);
    this.paintStrips(image, from, to, progress, tokens);
    context.putImageData(image, 0, 0);
  }

  /**
   * A cell has the colours of its causes, by their shares of what is kept, the fuller the more of its pairs are.
   * @param {ImageData} image
   * @param {Uint32Array} cells
   * @param {number} room pairs of a cell
   * @param {number} size
   */
  paintPairs(image, cells, room, size) {
    const colours = KEPT_CAUSES.map((cause) => channels(cssColour(this.app.root, `cause-${cause}`)));
    const side = size + STRIP;
    for (let cell = 0; cell < size * size; cell += 1) {
      let kept = 0;
      let [red, green, blue] = [0, 0, 0];
      for (let cause = 0; cause < colours.length; cause += 1) {
        const count = cells[cell * colours.length + cause];
        if (count === 0) continue;
        kept += count;
        red += count * colours[cause][0];
        green += count * colours[cause][1];
        blue += count * colours[cause][2];
      }
      if (kept === 0) continue;
      const at = 4 * ((Math.floor(cell / size) + STRIP) * side + (cell % size) + STRIP);
      image.data[at] = red / kept;
      image.data[at + 1] = green / kept;
      image.data[at + 2] = blue / kept;
      image.data[at + 3] = 255 * Math.sqrt(Math.min(1, kept / room)); // single pairs of a large cell are seen too
    }
  }

  /**
   * Each token's group, at the left of its row and above its column, unless the columns are ranks.
   * @param {ImageData} image
   * @param {Arrangement} from
   * @param {Arrangement} to
   * @param {number} progress
   * @param {number} tokens along each side of a cell
   */
  paintStrips(image, from, to, progress, tokens) {
    const { groups, numTokens } = /** @type {KeptPairs} */ (this.pairs);
    const theme = themeOf(this.app.root);
    const colours = Array.from({ length: this.app.run.numGroups }, (_, group) => channels(groupColour(group, theme)));
    const side = image.width;
    /** @param {number} x @param {number} y @param {number} group */
    const dot = (x, y, group) => image.data.set([...colours[group], 255], 4 * (y * side + x));
    /** @param {Uint16Array} before @param {Uint16Array} after @param {number} pos */
    const place = (before, after, pos) =>
      STRIP + Math.floor((before[pos] + (after[pos] - before[pos]) * progress) / tokens);
    for (let pos = 0; pos < numTokens; pos += 1) {
      const row = place(from.row, to.row, pos);
      for (let x = 0; x < STRIP - 2; x += 1) dot(x, row, groups[pos]);
      if (from.column === null || to.column === null) continue;
      const column = place(from.column, to.column, pos);
      for (let y = 0; y < STRIP - 2; y += 1) dot(column, y, groups[pos]);
    }
  }
}
