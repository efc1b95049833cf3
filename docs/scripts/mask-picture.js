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

/** @import { Pairs, Setting } from "./pairs.js" */
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
    this.build();
    watchTheme(root, () => this.draw());
    this.draw();
  }

  build() {
    const groups = this.example.order[0].length;
    this.sliders = [
      this.slider({ name: "topK", label: "Groups of a token, k", max: groups, value: this.setting.topK }),
      this.slider({ name: "window", label: "Window, w", max: this.size - 1, value: this.setting.window }),
      this.slider({ name: "sinks", label: "Sinks, s", max: 8, value: this.setting.sinks }),
    ];
    this.total = el("p", { class: "picture-total", "aria-live": "polite" });
    this.counts = CODES.map(() => el("td"));
    this.reading = el("p", { class: "picture-reading", "aria-live": "polite" });
    this.cells = svg("g", { "shape-rendering": "crispEdges" });
    const extent = this.size + STRIP + 0.4;
    this.drawing = svg(
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
    this.root.replaceChildren(
      el("div", { class: "picture-controls" }, this.sliders),
      el("div", { class: "picture-sides" }, el("div", { class: "picture-side" }), this.legend()),
      this.reading,
    );
    this.root.querySelector(".picture-side")?.append(this.drawing);
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
    return el("div", { class: "picture-legend" }, this.total, el("table", {}, [...rows.slice(1), rows[0]]));
  }

  draw() {
    const pairs = countPairs(this.example.order, this.setting);
    this.pairs = pairs;
    setText(
      this.total,
      `${format.count(pairs.kept)} of ${format.count(pairs.all)} pairs kept (${format.percent(pairs.kept / pairs.all)})`,
    );
    pairs.counts.forEach((count, code) => setText(this.counts[code], format.count(count)));
    this.mark = svg("path", { class: "picture-cursor" });
    this.cells.replaceChildren(...this.strips(), ...CODES.map((cause, code) => this.cellsOf(pairs, cause, code)), this.mark);
    this.read();
  }

  /** The most probable group of every query, left, and of every key, above. */
  strips() {
    return this.example.order.flatMap(([group], at) => {
      const fill = groupColour(group, themeOf(this.root));
      const place = STRIP + 0.4 + at;
      return [
        svg("rect", { x: 0, y: place, width: STRIP, height: 1, fill }),
        svg("rect", { x: place, y: 0, width: 1, height: STRIP, fill }),
      ];
    });
  }

  /**
   * @param {Pairs} pairs
   * @param {string} cause
   * @param {number} code
   */
  cellsOf(pairs, cause, code) {
    const found = pairs.codes.flatMap((row, query) =>
      row.flatMap((one, key) => (one === code ? [cellPath(query, key, 1)] : [])),
    );
    return svg("path", { d: found.join(""), style: `fill: var(--fx-cause-${cause})` });
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
    if (down === undefined || right === undefined) return;
    event.preventDefault();
    this.move(this.cursor.query + down, this.cursor.key + right);
  }

  /** @param {PointerEvent} event */
  point(event) {
    const box = this.drawing.getBoundingClientRect();
    const scale = (this.size + STRIP + 0.4) / box.width;
    const place = [event.clientY - box.top, event.clientX - box.left].map((at) => Math.floor(at * scale - STRIP - 0.4));
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
    this.mark?.setAttribute("d", cellPath(query, key, 1));
    const code = this.pairs?.codes[query][key] ?? 0;
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
 * @param {number} size
 */
const cellPath = (query, key, size) =>
  `M${key + STRIP + 0.4} ${query + STRIP + 0.4}h${size}v${size}h${-size}z`;
