// @ts-check
// The mask of a short text as a picture with three sliders and a cursor.
import { groupColour } from "../../assets/js/core/colours.js";
import { el, setText } from "../../assets/js/core/dom.js";
import { format } from "../../assets/js/core/format.js";
import { groupLabel, visibleToken } from "../../assets/js/core/labels.js";
import { KEPT_CAUSES } from "../../assets/js/core/pair-rule.js";
import { svg } from "../../assets/js/core/svg.js";
import { themeOf, watchTheme } from "../../assets/js/core/theme.js";
import { countPairs, groupsOf } from "./pairs.js";

/** @import { Setting } from "./pairs.js" */
/** @typedef {{ name: "topK" | "window" | "sinks", label: string, max: number, value: number }} Slider */

const NAMES = {
  dropped: "dropped",
  local_only: "near, no group in common",
  group_only: "far, a group in common",
  local_and_group: "near and a group in common",
  sink_only: "a sink, neither near nor of the group",
};

/** @type {(keyof typeof NAMES)[]} */
const CODES = ["dropped", .../** @type {(keyof typeof NAMES)[]} */ (KEPT_CAUSES)];

const STRIP = 1.6;

const EDGE = STRIP + 0.4;

/** Rows down and columns to the right. @type {Record<string, number[]>} */
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class MaskPicture {
  /**
   * @param {HTMLElement} root
   * @param {{ layer: number, pieces: string[], order: number[][] }} example
   */
  constructor(root, example) {
    this.root = root;
    this.example = example;
    this.size = example.pieces.length;
    this.cursor = { query: Math.floor(this.size * 0.75), key: Math.floor(this.size / 4) };
    /** @type {Setting} */
    this.setting = { topK: 1, window: 4, sinks: 2 };
    this.total = el("p", { class: "picture-total", "aria-live": "polite" });
    this.counts = CODES.map(() => el("td"));
    this.reading = el("p", { class: "picture-reading", "aria-live": "polite" });
    this.cells = svg("g", { "shape-rendering": "crispEdges" });
    this.mark = svg("path", { class: "picture-cursor" });
    this.drawing = this.emptyDrawing();
    this.pairs = countPairs(example.order, this.setting);
    const groups = example.order[0].length;
    const sliders = [
      this.slider({ name: "topK", label: "Groups of a token, k", max: groups, value: this.setting.topK }),
      this.slider({ name: "window", label: "Window, w", max: this.size - 1, value: this.setting.window }),
      this.slider({ name: "sinks", label: "Sinks, s", max: 8, value: this.setting.sinks }),
    ];
    const side = el("div", { class: "picture-side" });
    side.append(this.drawing);
    root.replaceChildren(
      el("div", { class: "picture-controls" }, sliders),
      el("div", { class: "picture-sides" }, side, this.legend()),
      this.reading,
    );
    watchTheme(root, () => this.draw());
    this.draw();
  }

  emptyDrawing() {
    const extent = this.size + EDGE;
    return svg(
      "svg",
      {
        viewBox: `0 0 ${extent} ${extent}`,
        class: "picture-mask",
        tabindex: "0",
        role: "application",
        "aria-label": "Mask: queries down, keys across. Arrow keys move to another pair.",
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.press(event),
        onpointermove: (/** @type {PointerEvent} */ event) => this.point(event),
        onpointerdown: (/** @type {PointerEvent} */ event) => this.point(event),
      },
      this.cells,
    );
  }

  /** @param {Slider} slider */
  slider({ name, label, max, value }) {
    const shown = el("output", {}, value);
    const input = el("input", {
      type: "range",
      min: 0,
      max,
      value,
      oninput: () => {
        this.setting[name] = Number(input.value);
        setText(shown, input.value);
        this.draw();
      },
    });
    return el("label", { class: "picture-slider" }, el("span", {}, label, " = ", shown), input);
  }

  legend() {
    const rows = CODES.map((cause, code) =>
      el(
        "tr",
        {},
        el("td", {}, el("span", { class: "picture-swatch", style: `background: var(--fx-cause-${cause})` })),
        el("td", {}, NAMES[cause]),
        this.counts[code],
      ),
    );
    const table = el("table", { class: "picture-causes" }, [...rows.slice(1), rows[0]]);
    return el("div", { class: "picture-legend" }, this.total, table);
  }

  draw() {
    this.pairs = countPairs(this.example.order, this.setting);
    const { counts, kept, all } = this.pairs;
    const share = format.percent(kept / all);
    setText(this.total, `${format.count(kept)} of ${format.count(all)} pairs kept (${share})`);
    counts.forEach((count, code) => setText(this.counts[code], format.count(count)));
    const cells = CODES.map((cause, code) => this.cellsOf(cause, code));
    this.cells.replaceChildren(...this.strips(), ...cells, this.mark);
    this.read();
  }

  /** The most probable group of every query, left, and of every key, above. */
  strips() {
    return this.example.order.flatMap(([group], at) => {
      const fill = groupColour(group, themeOf(this.root));
      const place = EDGE + at;
      return [
        svg("rect", { x: 0, y: place, width: STRIP, height: 1, fill }),
        svg("rect", { x: place, y: 0, width: 1, height: STRIP, fill }),
      ];
    });
  }

  /**
   * @param {string} cause
   * @param {number} code
   */
  cellsOf(cause, code) {
    const found = this.pairs.codes.flatMap((row, query) =>
      row.flatMap((one, key) => (one === code ? [cellPath(query, key)] : [])),
    );
    return svg("path", { d: found.join(""), style: `fill: var(--fx-cause-${cause})` });
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (!Object.hasOwn(ARROWS, event.key)) return;
    event.preventDefault();
    const [down, right] = ARROWS[event.key];
    this.move(this.cursor.query + down, this.cursor.key + right);
  }

  /** @param {PointerEvent} event */
  point(event) {
    const box = this.drawing.getBoundingClientRect();
    const scale = (this.size + EDGE) / box.width;
    const place = [event.clientY - box.top, event.clientX - box.left].map((at) => Math.floor(at * scale - EDGE));
    if (place.every((at) => at >= 0) && place[1] <= place[0]) this.move(place[0], place[1]);
  }

  /**
   * @param {number} query
   * @param {number} key
   */
  move(query, key) {
    this.cursor.query = Math.max(0, Math.min(this.size - 1, query));
    this.cursor.key = Math.max(0, Math.min(this.cursor.query, key));
    this.read();
  }

  read() {
    const { query, key } = this.cursor;
    this.mark.setAttribute("d", cellPath(query, key));
    const code = this.pairs.codes[query][key];
    const kept = code === 0 ? "dropped" : `kept: ${NAMES[CODES[code]]}`;
    const distance = query === key ? "the same token" : `${query - key} back`;
    setText(this.reading, `${this.token(query)} looks at ${this.token(key)}, ${distance}: ${kept}.`);
  }

  /** @param {number} at */
  token(at) {
    const groups = groupsOf(this.example.order[at], this.setting.topK).map(groupLabel).join(", ");
    return `“${visibleToken(this.example.pieces[at])}” (token ${at}, ${groups ? `group ${groups}` : "no group"})`;
  }
}

/**
 * @param {number} query
 * @param {number} key
 */
const cellPath = (query, key) => `M${key + EDGE} ${query + EDGE}h1v1h-1z`;
