// @ts-check
// How two runs agree: in sentences, and as a chart over the layers.
import { nats } from "./cells.js";
import { sum } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { interval95, sideOfZero } from "../core/interval.js";
import { LEGEND_ABOVE, drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { runs as text } from "../strings/compare.js";
/** @import { App } from "../shell/app.js" */
/** @import { MatchedRunsPayload } from "../core/payloads.js" */
/** @import { RunPair } from "./run-pair.js" */

/** @typedef {"overlap" | "rand"} Measure */

/** @param {RunPair} pair */
export function agreementSentences(pair) {
  const { run, answer } = pair;
  const { layers } = answer;
  const layer = layers[pair.otherIndex];
  const changed = pair.changedPositions().length;
  const { mean, low, high, count } = answer.difference;
  const side = sideOfZero(low, high);
  const difference = side > 0 ? text.worse : side < 0 ? text.better : text.same;
  /** @param {Measure} name */
  const average = (name) => sum(layers.map((entry) => entry[name])) / layers.length;
  const sentences = [difference(nats(mean), interval95(low, high, nats), format.count(count))];
  if (layer && changed === 0) sentences.push(text.identical);
  else if (layer) {
    const tokens = [format.count(changed), format.count(run.numTokens)];
    const shares = [format.percent(layer.overlap), format.decimal(layer.rand, 2)];
    sentences.push(text.agreement(tokens[0], tokens[1], layer.layer, shares[0], shares[1]));
  }
  if (!layer) sentences.push(text.noLayer(run.layerIds[pair.app.layerIndex]));
  if (layers.length > 0) {
    const shares = [format.percent(average("overlap")), format.decimal(average("rand"), 2)];
    sentences.push(text.mean(shares[0], shares[1], layers.length, layers.length === run.numLayers));
  }
  return sentences;
}

/**
 * @param {App} app
 * @param {HTMLElement} node
 * @param {MatchedRunsPayload} answer
 */
export function drawAgreement(app, node, { layers }) {
  const { root, run } = app;
  /** @param {Measure} name @param {string} label @param {string} colour @param {string} dash @param {string} symbol */
  const trace = (name, label, colour, dash, symbol) => ({
    type: "scatter",
    mode: "lines+markers",
    name: label,
    x: layers.map((layer) => layer.layer),
    y: layers.map((layer) => layer[name]),
    hoverinfo: "none",
    line: { color: cssColour(root, colour), dash },
    marker: { symbol },
    customdata: layers,
  });
  const open = run.layerIds[app.layerIndex];
  const line = { color: cssColour(root, "border-strong"), dash: "dot", width: 1 };
  const layout = plotLayout(root, {
    legend: LEGEND_ABOVE,
    xaxis: plotAxis(root, text.layerAxis, { showgrid: false, zeroline: false }),
    yaxis: plotAxis(root, text.agreementAxis, {
      range: [Math.min(0, ...layers.map((layer) => layer.rand)), 1.02],
      fixedrange: true,
    }),
    shapes: [{ type: "line", x0: open, x1: open, yref: "paper", y0: 0, y1: 1, line }],
  });
  const traces = [
    trace("overlap", text.overlap, "accent", "solid", "circle"),
    trace("rand", text.rand, "worse", "dash", "square"),
  ];
  drawPlot(app, node, traces, layout, {
    hover: ({ x, customdata: { overlap, rand } }) => {
      const values = [`${text.overlap} ${format.percent(overlap)}`, `${text.rand} ${format.decimal(rand, 2)}`];
      return el("div", {}, `${text.layerAxis} ${x}: ${values.join(", ")}`);
    },
    click: (point) => app.setLayer(run.layerIds.indexOf(point.x)),
  });
}
