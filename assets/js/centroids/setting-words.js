// @ts-check
// A setting of a run or of a centroid file as it stands in a table.
import { budgetWords } from "./budget-points.js";
import { centroids as text } from "../strings/centroids.js";
/** @import { CentroidChangesPayload, HeadExceptionPayload } from "../core/payloads.js" */

/**
 * A setting in words; one that is absent is none, but no layers named means all of them.
 * @param {string} name
 * @param {CentroidChangesPayload["settings"][number][1] | undefined} setting
 */
export function settingInWords(name, setting) {
  if (setting === null || setting === undefined) return name === "layers" ? text.allLayers : text.notSet;
  if (name === "budget") return budgetWords(/** @type {HeadExceptionPayload[]} */ (setting)) ?? text.notSet;
  if (typeof setting === "boolean") return setting ? text.yes : text.no;
  return Array.isArray(setting) ? setting.join(", ") : String(setting);
}
