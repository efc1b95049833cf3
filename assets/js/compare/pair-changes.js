// @ts-check
// The pairs of one layer that changes add and drop, drawn as the mask's triangle.
import { decodeBase64, expectLength } from "../core/bytes.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { tooltipHead, tooltipRow } from "../core/tooltip.js";
import { whatIf as text } from "../strings/what-if.js";
/** @import { ChangedPairsPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */

export class PairChanges {
  /** @type {ChangedPairsPayload | null} */
  shown = null;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.title = el("h4", { class: "fx-link-title" });
    this.words = el("p", { class: "fx-help", "data-testid": "fx-pair-changes" });
    this.plot = plotElement("fx-pair-changes", text.pairsLabel, "fx-pair-changes-plot");
    this.node = el("div", {}, this.title, this.words, this.plot);
  }

  /** @param {ChangedPairsPayload | null} pairs */
  show(pairs) {
    this.node.hidden = pairs === null;
    if (pairs === null || pairs === this.shown) return;
    this.shown = pairs;
    const { layer, gained, lost } = pairs;
    const none = gained === 0 && lost === 0;
    this.title.textContent = text.pairsTitle(layer);
    this.words.textContent = none ? text.pairsNone : text.pairs(number(gained), number(lost));
    this.plot.hidden = none;
    if (!none) this.draw(pairs);
  }

  /** @param {ChangedPairsPayload} pairs */
  draw(pairs) {
    const { root } = this.app;
    const side = Math.ceil(pairs.num_tokens / pairs.block_size);
    const [gained, lost] = [pairs.gained_shares, pairs.lost_shares].map((shares) =>
      triangle(new Float32Array(decodeBase64(shares).buffer), side),
    );
    const z = gained.map((row, query) =>
      row.map((share, key) => (key > query ? null : /** @type {number} */ (share) - Number(lost[query][key]))),
    );
    const edge = Math.max(...z.flat().map((value) => Math.abs(value ?? 0)), 1e-3);
    const middle = (/** @type {number} */ block) => block * pairs.block_size + (pairs.block_size - 1) / 2;
    const places = z.map((_, block) => middle(block));
    const trace = {
      type: "heatmap",
      z,
      x: places,
      y: places,
      zmin: -edge,
      zmax: edge,
      colorscale: [
        [0, cssColour(root, "worse")],
        [0.5, cssColour(root, "subtle")],
        [1, cssColour(root, "better")],
      ],
      colorbar: { title: { text: text.colourBar, side: "right" }, thickness: 12, outlinewidth: 0, tickformat: ".0%" },
      hoverinfo: "none",
      hoverongaps: false,
    };
    const layout = plotLayout(root, {
      dragmode: false,
      xaxis: plotAxis(root, text.keyAxis, { showgrid: false, zeroline: false, fixedrange: true, tickformat: ",d" }),
      yaxis: plotAxis(root, text.queryAxis, {
        showgrid: false,
        zeroline: false,
        fixedrange: true,
        autorange: "reversed",
        tickformat: ",d",
      }),
    });
    drawPlot(this.app, this.plot, [trace], layout, {
      hover: ({ pointNumber }) => {
        const [query, key] = /** @type {number[]} */ (pointNumber);
        const span = (/** @type {number} */ block) => {
          const first = block * pairs.block_size;
          const last = Math.min(pairs.num_tokens, first + pairs.block_size) - 1;
          return first === last ? format.count(first) : `${format.count(first)}–${format.count(last)}`;
        };
        return [
          tooltipHead(text.block(span(query), span(key))),
          tooltipRow(text.gained, format.percent(Number(gained[query][key]), 1)),
          tooltipRow(text.lost, format.percent(Number(lost[query][key]), 1)),
        ];
      },
    });
  }
}

/**
 * Pairs, a mean over heads: the fraction says something of few.
 * @param {number} pairs
 */
const number = (pairs) =>
  pairs < 100 && Math.abs(pairs - Math.round(pairs)) > 1e-6 ? format.decimal(pairs, 2) : format.count(pairs);

/**
 * Rows of a lower triangle that is stored row by row; null above the diagonal.
 * @param {Float32Array} values
 * @param {number} side
 * @returns {(number | null)[][]}
 */
export function triangle(values, side) {
  expectLength("the triangle", values, (side * (side + 1)) / 2);
  return Array.from({ length: side }, (_, row) =>
    Array.from({ length: side }, (__, column) => (column > row ? null : values[(row * (row + 1)) / 2 + column])),
  );
}
