// @ts-check
// Names of the groups of a run: the ones that people gave, else the ones made from statistics. They come after the run,
// so every view shows letters until they are here.
import { forgetAnswer, requestOnce } from "./answers.js";
import { el } from "./dom.js";
import { groupLabel } from "./labels.js";
import { groupChip } from "./widgets.js";
import { heads as text } from "../strings/heads.js";
/** @import { GroupNamePayload, GroupNamesPayload } from "./payloads.js" */
/** @import { Run } from "./run.js" */
/** @import { App } from "../shell/app.js" */

/** @type {WeakMap<Run, GroupNamesPayload>} */
const known = new WeakMap();

/**
 * Fetches the names of the open run; true when they are new.
 * @param {App} app
 * @param {boolean} [anew] whether something was measured since that names follow
 */
export async function fetchGroupNames(app, anew = false) {
  const { run } = app;
  if (anew) forgetAnswer(run, "group_names");
  const answer = await requestOnce(app, "group_names");
  if (answer.error !== undefined || known.get(run) === answer || (known.has(run) && !anew)) return false;
  known.set(run, answer);
  return app.run === run;
}

/**
 * All that is known of a run's names; undefined until they are here.
 * @param {Run} run
 */
export const groupNames = (run) => known.get(run);

/**
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} group
 */
export const groupName = (run, layerIndex, group) => {
  const cell = known.get(run)?.names[layerIndex][group];
  return cell ? (cell.given ?? cell.name) : "";
};

/**
 * Puts what the server says of a group in the place of what was known; all names are new to those that keep them.
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} group
 * @param {GroupNamePayload} cell
 */
export function setGroupName(run, layerIndex, group, cell) {
  const names = known.get(run);
  if (!names) return;
  names.names[layerIndex][group] = cell;
  known.set(run, { ...names });
}

/**
 * The letter with the name, where there is one: "C · mostly pronouns".
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} group
 */
export const namedLabel = (run, layerIndex, group) => {
  const name = groupName(run, layerIndex, group);
  return name ? `${groupLabel(group)} · ${name}` : groupLabel(group);
};

/**
 * The chip of a group with its name beside it.
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} group
 */
export const namedChip = (run, layerIndex, group) => {
  const name = groupName(run, layerIndex, group);
  return [groupChip(group), ...(name ? [el("span", { class: "fx-group-title" }, name)] : [])];
};

/**
 * The groups of a token for some heads of a layer: their chips, or why there are none.
 * @param {Run} run
 * @param {number} layerIndex
 * @param {number} pos
 * @param {number} part of the layer's heads
 */
export const tokenChips = (run, layerIndex, pos, part) => {
  const groups = run.groupsOf(layerIndex, pos, part);
  if (groups.length > 0) return groups.flatMap((group) => namedChip(run, layerIndex, group));
  return [withoutGroups(run.layers[layerIndex].parts[part])];
};

/**
 * Why a token has no group for some heads.
 * @param {{ full: boolean, top_k: number | null }} part
 */
export const withoutGroups = ({ full, top_k: topK }) =>
  full ? text.noneInFull : topK === 0 ? text.noneUsed : text.noneLeft;
