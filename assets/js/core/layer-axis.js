// @ts-check
// Layers along an axis of a chart: which are labelled, and the mark of the open one.
import { range } from "./arrays.js";
import { cssColour } from "./theme.js";
/** @import { Run } from "./run.js" */

/**
 * Every layer, or every second, third and so on: at most `most` labels.
 * @param {Run} run
 * @param {number} [most]
 */
export const layerTicks = (run, most = 16) => {
  const step = Math.ceil(run.numLayers / most);
  const tickvals = range(run.numLayers).filter((index) => index % step === 0);
  return { tickvals, ticktext: tickvals.map((index) => run.layerIds[index]) };
};

/**
 * A frame around the row of one layer, across the whole chart.
 * @param {HTMLElement} root
 * @param {number} layerIndex
 */
export const layerFrame = (root, layerIndex) => ({
  type: "rect",
  xref: "paper",
  x0: 0,
  x1: 1,
  y0: layerIndex - 0.5,
  y1: layerIndex + 0.5,
  line: { color: cssColour(root, "accent"), width: 2 },
});
