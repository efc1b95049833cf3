// @ts-check
// What the export dialog offers and what is chosen in it.
/** @import { ExportItemPayload } from "../core/payloads.js" */

/**
 * The fields of the dialog.
 * @typedef {{ kind: "table" | "mask" | "figure" | "bundle" | "report", table: string, format: string, figure: string,
 *   figureFormat: string, preset: string, reportFormat: string, text: boolean, only: boolean, maskLayer: string,
 *   maskHead: string, maskFormat: string, first: string, last: string }} Choice
 */

/**
 * @param {ExportItemPayload[]} items
 * @param {string} name one of theirs
 */
export const itemNamed = (items, name) => /** @type {ExportItemPayload} */ (items.find((item) => item.name === name));

/**
 * The layer a run opens at.
 * @template Layer
 * @param {Layer[]} layers
 */
export const middleOf = (layers) => layers[Math.floor(layers.length / 2)];
