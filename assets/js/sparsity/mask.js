// @ts-check
// The mask of one layer, from all pairs down to single ones: the server counts the visible part, this draws it.
import { range, sum } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { asChart, drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { selectTokens } from "../core/selection.js";
import { cssColour } from "../core/theme.js";
import { choiceOf } from "../core/widgets.js";
import { MaskCursor } from "./cursor.js";
import { CLOSEST, fitArea, movedArea, squareArea, zoomedArea } from "./mask-area.js";
import { describePair } from "./pair-details.js";
import { MaskTile } from "./tile.js";
import { pairs as pairsText, sparsity as sparsityText } from "../strings/sparsity.js";
/** @import { MaskArea } from "./mask-area.js" */
/** @import { Mask } from "../core/mask.js" */
/** @import { PlotZoom } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

const text = pairsText.zoom;

/** @param {[number, number]} pair */
const spanWords = ([first, last]) => sparsityText.range(format.count(first), format.count(last));

const ZOOM_STEP = 2;

const MOVE_STEP = 0.25;

const MIDDLE = { x: 0.5, y: 0.5 };

const BELOW_DIAGONAL = { x: 0.3, y: 0.7 }; // the middle of the whole lies on the diagonal, where all pairs are near

const SETTLE_MS = 80; // wheels and keys come in bursts

export class ZoomMask {
  /** @type {Record<"in" | "out" | "whole", HTMLButtonElement>} */
  buttons;
  /** @type {MaskArea | null} */
  view;
  /** @type {MaskTile} */
  whole;
  /** @type {number} */
  timer;
  /** @type {MaskTile} */
  tile;
  /** @type {boolean} */
  listening;

  /**
   * `look(tile)` gives z and colours of the heatmap; `describe(tile, row, column)` the tooltip of a block.
   * @param {App} app
   * @param {(tile: MaskTile) => object} colouring
   * @param {(tile: MaskTile, row: number, column: number) => HTMLElement[]} describe
   */
  constructor(app, colouring, describe) {
    this.app = app;
    this.colouring = colouring;
    this.describe = describe;
    this.clicked = "block";
    this.outdated = false;
    /** The run that is drawn. @type {Run} */
    this.run = /** @type {any} */ (null);
    this.requestId = 0;
    this.cursor = new MaskCursor(this);
    // An application, so that screen readers leave the arrow keys to the cursor.
    this.plot = el("div", {
      class: "fx-plot fx-mask",
      role: "application",
      tabindex: "0",
      "aria-describedby": this.cursor.description.id,
      "data-testid": "fx-mask",
      onkeydown: (event) => this.key(event),
      onblur: () => app.tooltip.hide(),
    });
    this.plot.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.level = el("p", { class: "fx-help fx-mask-level", role: "status", "data-testid": "fx-mask-level" });
    this.node = el(
      "div",
      {},
      this.toolbar(),
      this.plot,
      this.level,
      this.cursor.description,
      el("p", { class: "fx-help" }, text.help),
    );
  }

  toolbar() {
    /** @param {string} label @param {() => unknown} run */
    const button = (label, run) => buttonOf(label, run, { disabled: true }); // until there is a picture
    this.buttons = {
      in: button(text.in, () => this.zoom(1 / ZOOM_STEP)),
      out: button(text.out, () => this.zoom(ZOOM_STEP)),
      whole: button(text.whole, () => this.show(null)),
    };
    return el(
      "div",
      { class: "fx-mask-tools" },
      el("div", { class: "fx-mask-zoom", role: "group", "aria-label": text.toolbar }, Object.values(this.buttons)),
      choiceOf(text.clickLabel, text.clicks, this.clicked, (value) => (this.clicked = value)),
    );
  }

  get layerId() {
    return this.app.run.layerIds[this.app.layerIndex];
  }

  /** Another layer is on its way: what was asked of the one drawn counts no more. */
  wait() {
    this.requestId += 1;
    this.outdated = true;
    this.plot.classList.add("fx-stale");
  }

  /**
   * The stored blocks of a layer; a closer look stays where it was when only the layer changes.
   * @param {Mask} mask
   */
  setWhole(mask) {
    const { run } = this.app;
    this.requestId += 1; // a closer look still on its way belongs to another layer or run
    if (this.run !== run) {
      this.view = null;
      this.cursor.hide();
    }
    this.run = run;
    this.whole = MaskTile.whole(mask, run.numTokens);
    if (this.view) this.show(this.view);
    else this.draw(this.whole);
  }

  /**
   * rows and keys as [first, last], or null for everything.
   * @param {MaskArea | null} view
   */
  async show(view) {
    this.view = view && fitArea(view, this.run.numTokens);
    const requestId = (this.requestId += 1);
    const start = performance.now();
    if (!this.view) {
      await this.draw(this.whole);
    } else {
      this.plot.classList.add("fx-stale");
      const answer = await this.app.request("mask_tile", { layer: this.layerId, part: this.app.part, ...this.view });
      if (requestId !== this.requestId || !this.app.isOpen("sparsity")) return;
      if (answer.error === undefined) await this.draw(new MaskTile(answer));
      else {
        this.view = null;
        await this.draw(this.whole);
        this.level.textContent = text.failed(answer.error);
      }
    }
    this.app.root.dataset.zoomMs = (performance.now() - start).toFixed(1);
  }

  /** @param {MaskArea | null} view */
  soon(view) {
    this.view = view && fitArea(view, this.run.numTokens);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.app.isOpen("sparsity") && this.show(this.view), SETTLE_MS);
  }

  /** @returns {MaskArea} */
  current() {
    /** @type {[number, number]} */
    const all = [0, this.run.numTokens - 1];
    return this.view || { rows: all, keys: all };
  }

  focusPoint() {
    if (this.cursor.place !== null) return this.cursor.centre();
    return this.view ? MIDDLE : BELOW_DIAGONAL;
  }

  /**
   * Around a point given as fractions of the picture: the cursor, or its middle.
   * @param {number} factor
   * @param {{ x: number, y: number }} [at]
   */
  zoom(factor, at = this.focusPoint()) {
    this.soon(zoomedArea(this.current(), factor, at));
  }

  /**
   * @param {number} down
   * @param {number} right
   */
  move(down, right) {
    this.soon(movedArea(this.current(), down * MOVE_STEP, right * MOVE_STEP));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    /** @type {Record<string, () => unknown>} */
    const actions = {
      "+": () => this.zoom(1 / ZOOM_STEP),
      "=": () => this.zoom(1 / ZOOM_STEP),
      "-": () => this.zoom(ZOOM_STEP),
      0: () => this.soon(null),
      ArrowUp: () => this.move(-1, 0),
      ArrowDown: () => this.move(1, 0),
      ArrowLeft: () => this.move(0, -1),
      ArrowRight: () => this.move(0, 1),
    };
    if (event.target !== this.plot || event.ctrlKey || event.metaKey || event.altKey || !this.tile) return;
    if (this.cursor.key(event))
      event.stopPropagation(); // Escape leaves the cursor before it lets go of the selection
    else if (event.key in actions) actions[event.key]();
    else return;
    event.preventDefault();
  }

  /**
   * With Ctrl only, or the page could not be scrolled past the mask; a pinch on a touch pad arrives as the same.
   * @param {WheelEvent} event
   */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const area = this.plot.querySelector(".nsewdrag");
    if (!area) return;
    const box = area.getBoundingClientRect();
    /** @param {number} value @param {number} low @param {number} size */
    const share = (value, low, size) => Math.max(0, Math.min(1, (value - low) / size));
    this.zoom(event.deltaY < 0 ? 1 / 1.5 : 1.5, {
      x: share(event.clientX, box.left, box.width),
      y: share(event.clientY, box.top, box.height),
    });
  }

  /** @param {MaskTile} tile */
  async draw(tile) {
    const { app } = this;
    this.plot.classList.remove("fx-stale");
    this.outdated = false;
    this.tile = tile;
    this.updateLevel();
    await drawPlot(app, this.plot, [this.heatmap()], this.layout(), {
      hover: (point) => this.hover(point),
      click: (point) => this.click(point),
    });
    this.addListeners();
    this.cursor.follow();
  }

  redraw() {
    if (this.tile) this.draw(this.tile);
  }

  addListeners() {
    if (this.listening) return;
    this.listening = true;
    asChart(this.plot).on("plotly_relayout", (change) => this.dragged(change));
    asChart(this.plot).on("plotly_doubleclick", () => this.show(null));
  }

  /**
   * A rectangle as flat as a line zooms one axis alone; the other stays.
   * @param {PlotZoom} change
   */
  dragged(change) {
    const { rows, keys } = this.current();
    const { "xaxis.range[0]": k0 = keys[0], "xaxis.range[1]": k1 = keys[1] } = change;
    const { "yaxis.range[0]": q1 = rows[1], "yaxis.range[1]": q0 = rows[0] } = change;
    if (!Object.keys(change).some((name) => /^[xy]axis\.range\[/.test(name))) return;
    this.soon(squareArea({ rows: [q0, q1], keys: [k0, k1] }));
  }

  updateLevel() {
    const { tile } = this;
    this.level.textContent = text.level(spanWords(tile.rows), spanWords(tile.keys), format.count(tile.blockSize));
    const closest = this.view !== null && this.view !== undefined && this.view.rows[1] - this.view.rows[0] < CLOSEST;
    this.buttons.in.disabled = closest || this.run.numTokens <= CLOSEST;
    this.buttons.out.disabled = this.buttons.whole.disabled = !this.view;
  }

  heatmap() {
    const { tile } = this;
    const gap = Math.max(tile.numRows, tile.numColumns) <= 64 ? 1 : 0;
    return {
      type: "heatmap",
      x: tile.centres(tile.keys, tile.numColumns),
      y: tile.centres(tile.rows, tile.numRows),
      hoverinfo: "none",
      hoverongaps: false,
      showscale: false,
      xgap: gap,
      ygap: gap,
      ...this.colouring(tile),
    };
  }

  edges() {
    const { tile } = this;
    /** @param {[number, number]} side @param {number} count */
    const last = (side, count) => side[0] + count * tile.blockSize - 0.5;
    return {
      top: tile.rows[0] - 0.5,
      bottom: last(tile.rows, tile.numRows),
      left: tile.keys[0] - 0.5,
      right: last(tile.keys, tile.numColumns),
    };
  }

  // Selected tokens as bars: keys along the upper edge, queries along the right one, where the mask is mostly empty.
  // One shape, because Plotly redraws shapes without touching the heatmap.
  marks() {
    const { top, right } = this.edges();
    const keys = this.markSpans(this.tile.keys).map(([first, last]) => `M${first - 0.5},${top}L${last + 0.5},${top}`);
    const queries = this.markSpans(this.tile.rows).map(
      ([first, last]) => `M${right},${first - 0.5}L${right},${last + 0.5}`,
    );
    const path = [...keys, ...queries].join("");
    return path
      ? [{ type: "path", path, xref: "x", yref: "y", line: { width: 14, color: cssColour(this.app.root, "accent") } }]
      : [];
  }

  /**
   * Neighbours closer than a cell become one bar: no more bars than cells.
   * @param {[number, number]} pair
   */
  markSpans([low, high]) {
    /** @type {[number, number][]} */
    const spans = [];
    if (!this.app.selection) return spans;
    for (const pos of this.app.selection.positions) {
      if (pos < low || pos > high) continue;
      const last = spans[spans.length - 1];
      if (last && pos - last[1] <= this.tile.blockSize) last[1] = pos;
      else spans.push([pos, pos]);
    }
    return spans;
  }

  selectionChanged() {
    this.redrawShapes();
  }

  shapes() {
    return [...this.marks(), ...this.cursor.shapes()];
  }

  redrawShapes() {
    if (!this.tile || !this.listening) return;
    Plotly.relayout(this.plot, { shapes: this.shapes() });
  }

  layout() {
    const { root } = this.app;
    const { top, bottom, left, right } = this.edges();
    const plain = { showgrid: false, zeroline: false, tickformat: ",d" };
    return plotLayout(root, {
      shapes: this.shapes(),
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
      xaxis: plotAxis(root, sparsityText.key, { ...plain, range: [left, right] }),
      yaxis: plotAxis(root, sparsityText.query, { ...plain, range: [bottom, top] }),
    });
  }

  /** @param {{ pointNumber: number[] }} point */
  hover(point) {
    const { tile } = this;
    if (this.outdated) return null; // its words would be those of another layer
    const [row, column] = point.pointNumber;
    const counts = tile.blockCounts(row, column);
    if (sum(counts) === 0) return null;
    if (tile.blockSize === 1)
      return describePair(this.app, tile.rowSpan(row)[0], tile.keySpan(column)[0], tile.causes[counts.indexOf(1)]);
    return this.describe(tile, row, column);
  }

  /** @param {{ pointNumber: number[] }} point */
  click(point) {
    const { tile, app } = this;
    if (this.outdated) return undefined;
    const [row, column] = point.pointNumber;
    const [rows, keys] = [tile.rowSpan(row), tile.keySpan(column)];
    if (this.clicked === "row")
      return app.toggleSelection(selectTokens(tokensOf(rows), "row", text.row(spanWords(rows))));
    if (this.clicked === "column")
      return app.toggleSelection(selectTokens(tokensOf(keys), "row", text.column(spanWords(keys))));
    const label =
      tile.blockSize === 1 ? text.pair(spanWords(rows), spanWords(keys)) : text.block(spanWords(rows), spanWords(keys));
    return app.toggleSelection(selectTokens([...new Set([...tokensOf(rows), ...tokensOf(keys)])], "block", label));
  }
}

/** @param {[number, number]} pair */
const tokensOf = ([first, last]) => range(last - first + 1).map((i) => first + i);
