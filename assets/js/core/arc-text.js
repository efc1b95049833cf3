// @ts-check
// Some tokens of a text with their neighbours, and arcs from query tokens back to key tokens.
import { el } from "./dom.js";
import { oneLine } from "./labels.js";
import { svg } from "./svg.js";
/** @import { Run } from "./run.js" */

/** @typedef {{ pos: number, piece: string }} Shown */
/**
 * Drawn with dashes where `dropped`.
 * @typedef {{ from: number, to: number, gain: number, dropped?: boolean }} Arc
 */

const BEFORE = 6;
const AFTER = 3;
const WIDTHS = { least: 1.5, most: 5 };

/**
 * The tokens around some positions, in runs of neighbours.
 * @param {Run} run
 * @param {number[]} positions
 * @returns {Shown[][]}
 */
export function excerpt(run, positions) {
  const shown = new Set(
    positions.flatMap((pos) => {
      const first = Math.max(0, pos - BEFORE);
      const last = Math.min(run.numTokens - 1, pos + AFTER);
      return Array.from({ length: last - first + 1 }, (_, place) => first + place);
    }),
  );
  /** @type {Shown[][]} */
  const pieces = [];
  for (const pos of [...shown].sort((a, b) => a - b)) {
    const last = pieces.at(-1);
    const next = { pos, piece: run.shown[pos] };
    if (last !== undefined && last[last.length - 1].pos === pos - 1) last.push(next);
    else pieces.push([next]);
  }
  return pieces;
}

export class ArcText {
  /**
   * @param {{ label: string, go: (pos: number) => string }} words
   * @param {(pos: number) => unknown} open called with the token that was clicked
   */
  constructor(words, open) {
    this.words = words;
    this.open = open;
    /** @type {Arc[]} */
    this.arcs = [];
    /** @type {Map<number, HTMLElement>} */
    this.tokens = new Map();
    this.layer = /** @type {SVGElement} */ (svg("svg", { class: "fx-arcs", "aria-hidden": "true" }));
    this.text = el("p", { class: "fx-arc-text" });
    this.node = el("figure", { class: "fx-arc-figure", "aria-label": words.label }, this.text, this.layer);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  /**
   * @param {Shown[][]} pieces
   * @param {number} target the token that is predicted
   * @param {Arc[]} arcs
   */
  show(pieces, target, arcs) {
    this.arcs = arcs;
    this.tokens.clear();
    const ends = new Set(arcs.flatMap(({ from, to }) => [from, to]));
    const parts = pieces.flatMap((tokens, number) => [
      number > 0 || tokens[0].pos > 0 ? el("span", { class: "fx-muted" }, " … ") : null,
      ...tokens.map((token) => this.token(token, target, ends)),
    ]);
    this.text.replaceChildren(...parts.filter((part) => part !== null));
    this.draw();
  }

  /**
   * @param {Shown} token
   * @param {number} target
   * @param {Set<number>} ends
   */
  token({ pos, piece }, target, ends) {
    const kind = pos === target ? "target" : ends.has(pos) ? "end" : null;
    const words = oneLine(piece);
    const node =
      kind === null
        ? el("span", {}, words)
        : el("button", { type: "button", "data-kind": kind, "data-pos": pos, title: this.words.go(pos) }, words);
    if (kind !== null) {
      node.addEventListener("click", () => this.open(pos));
      this.tokens.set(pos, node);
    }
    return node;
  }

  draw() {
    const box = this.node.getBoundingClientRect();
    if (box.width === 0) return;
    const most = Math.max(...this.arcs.map(({ gain }) => gain), Number.EPSILON);
    this.layer.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    this.layer.replaceChildren(
      ...this.arcs.map(({ from, to, gain, dropped }, number) => {
        const [start, end] = [from, to].map((pos) => {
          const rect = /** @type {HTMLElement} */ (this.tokens.get(pos)).getBoundingClientRect();
          return { x: rect.left + rect.width / 2 - box.left, y: rect.top - box.top };
        });
        const lift = 14 + Math.min(40, Math.abs(start.x - end.x) / 8);
        const top = Math.min(start.y, end.y) - lift;
        const width = WIDTHS.least + (WIDTHS.most - WIDTHS.least) * Math.max(0, gain / most);
        return svg("path", {
          d: `M${start.x} ${start.y} C${start.x} ${top}, ${end.x} ${top}, ${end.x} ${end.y}`,
          "stroke-width": width.toFixed(2),
          "data-number": number,
          ...(dropped ? { "data-dropped": "" } : {}),
        });
      }),
    );
  }

  /** Makes one arc stand out, or none. @param {number | null} number */
  mark(number) {
    for (const path of this.layer.children)
      path.classList.toggle("fx-marked", number !== null && path.getAttribute("data-number") === String(number));
  }
}
