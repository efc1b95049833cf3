// @ts-check
// Traces of loss differences over the text.
import { range } from "../core/arrays.js";
import { format } from "../core/format.js";
import { LEGEND_ABOVE, drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { selection as selectionText, overview as text } from "../strings/compare.js";
/** @import { PlotEvents } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */

/** @typedef {{ worseTrace: string, betterTrace: string, positionAxis: string, lossAxis: string }} LossWords */

/**
 * Separate strokes from zero, one path: thousands of bar elements would make the page slow.
 * @param {(number | null)[]} differences
 * @param {(value: number) => boolean} includes
 * @param {string} name
 * @param {string} colour
 */
const stems = (differences, includes, name, colour) => {
  /** @type {(number | null)[]} */
  const x = [];
  /** @type {(number | null)[]} */
  const y = [];
  differences.forEach((value, pos) => {
    if (value === null || !includes(value)) return;
    x.push(pos, pos, null);
    y.push(0, value, null);
  });
  return {
    type: "scatter",
    mode: "lines",
    name,
    x,
    y,
    hoverinfo: "none",
    line: { color: colour, width: 1, simplify: false },
  };
};

/**
 * The chosen tokens as points on a chart over the text; nothing without a selection.
 * @param {App} app
 * @param {(number | null)[]} differences
 */
const selectedMarks = (app, differences) => {
  if (app.selection === null) return [];
  const x = [...app.selection.positions].filter((pos) => differences[pos] !== null);
  const colour = cssColour(app.root, "accent");
  return [
    {
      type: "scatter",
      mode: "markers",
      name: selectionText.trace,
      x,
      y: x.map((pos) => differences[pos]),
      hoverinfo: "none",
      marker: { size: 7, color: colour, symbol: "circle-open", line: { width: 2, color: colour } },
    },
  ];
};

/**
 * Each token's mean with its neighbours; of fewer at the ends.
 * @param {(number | null)[]} differences
 * @param {number} size tokens, odd
 * @param {string} colour
 */
export function meanLine(differences, size, colour) {
  const half = (size - 1) / 2;
  const sums = [0];
  const counts = [0];
  differences.forEach((value, pos) => {
    sums.push(sums[pos] + (value === null ? 0 : value));
    counts.push(counts[pos] + (value === null ? 0 : 1));
  });
  const y = differences.map((_, pos) => {
    const from = Math.max(0, pos - half);
    const to = Math.min(differences.length, pos + half + 1);
    return counts[to] > counts[from] ? (sums[to] - sums[from]) / (counts[to] - counts[from]) : null;
  });
  return {
    type: "scatter",
    mode: "lines",
    name: text.meanTrace(format.count(Math.min(size, counts[differences.length]))),
    x: range(differences.length),
    y,
    hoverinfo: "none",
    line: { color: colour, width: 2.5 },
  };
}

/**
 * Loss differences over the text, with the selected tokens marked.
 * @param {App} app
 * @param {HTMLElement} node
 * @param {(number | null)[]} differences
 * @param {LossWords} words
 * @param {PlotEvents} events
 * @param {object[]} [more] further traces
 */
export function drawLossChart(app, node, differences, words, events, more = []) {
  const { root } = app;
  const data = [
    stems(differences, (value) => value > 0, words.worseTrace, cssColour(root, "worse")),
    stems(differences, (value) => value < 0, words.betterTrace, cssColour(root, "better")),
    ...more,
    ...selectedMarks(app, differences),
  ];
  const layout = plotLayout(root, {
    hovermode: "x",
    legend: LEGEND_ABOVE,
    xaxis: plotAxis(root, words.positionAxis, {
      showgrid: false,
      range: [0, differences.length],
      zeroline: false,
      tickformat: ",d",
    }),
    yaxis: plotAxis(root, words.lossAxis, { zeroline: true, fixedrange: true }),
  });
  drawPlot(app, node, data, layout, events);
}
