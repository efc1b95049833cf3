// @ts-check
// The selection as a short code in the address.
import { Selection, selectGroup, selectRange, selectToken } from "./selection.js";
import { common } from "../strings/common.js";
/** @import { Run } from "./run.js" */

const LONGEST_IN_ADDRESS = 4000; // characters; a longer selection is kept in this browser under a short name

const STORED = "fx-selection-";

const BASE = 36;

/**
 * In the address: "g4.2" for group 2 of layer 4, "t" and runs of tokens as gap and length, "s" and the name of one kept
 * in this browser.
 * @param {Selection | null} selection
 * @returns {string | null}
 */
export const encodeSelection = (selection) => {
  if (selection === null) return null;
  if (selection.origin.kind === "group") return `g${selection.origin.layer}.${selection.origin.group}`;
  let end = 0;
  const parts = selection.ranges().map(([first, last]) => {
    const part =
      last === first
        ? (first - end).toString(BASE)
        : `${(first - end).toString(BASE)}-${(last - first).toString(BASE)}`;
    end = last;
    return part;
  });
  const code = `t${parts.join("_")}`;
  return code.length <= LONGEST_IN_ADDRESS ? code : store(code);
};

/**
 * @param {string | null} code
 * @param {Run} run
 * @returns {Selection | null}
 */
export const decodeSelection = (code, run) => {
  if (!code) return null;
  const group = /^g(\d+)\.(\d+)$/.exec(code);
  if (group) {
    const index = run.layerIds.indexOf(Number(group[1]));
    return index >= 0 && Number(group[2]) < run.numGroups ? selectGroup(run, index, Number(group[2])) : null;
  }
  const whole = code.startsWith("s") ? recall(code) : code;
  return whole && /^t[0-9a-z_-]+$/.test(whole) ? fromRuns(whole.slice(1), run) : null;
};

/**
 * @param {string} runs
 * @param {Run} run
 * @returns {Selection | null}
 */
function fromRuns(runs, run) {
  const positions = [];
  let end = 0;
  for (const part of runs.split("_")) {
    const [gap, length] = part.split("-").map((number) => parseInt(number, BASE));
    const first = end + gap;
    end = first + (length || 0);
    for (let pos = first; pos <= end && pos < run.numTokens; pos += 1) positions.push(pos);
  }
  if (positions.length === 0 || positions.some(Number.isNaN)) return null;
  if (positions.length === 1) return selectToken(positions[0]);
  const whole = positions[positions.length - 1] - positions[0] === positions.length - 1;
  if (whole) return selectRange(positions[0], positions[positions.length - 1]);
  return new Selection(positions, { kind: "tokens", label: common.selection.tokens });
}

/**
 * @param {string} code
 * @returns {string | null}
 */
function store(code) {
  let hash = 0;
  for (let i = 0; i < code.length; i += 1) hash = (Math.imul(hash, 31) + code.charCodeAt(i)) >>> 0;
  const name = `s${hash.toString(BASE)}`;
  try {
    window.localStorage.setItem(STORED + name, code);
  } catch {
    return null; // private browsing: the selection works, it only does not survive a reload
  }
  return name;
}

/**
 * @param {string} name
 * @returns {string | null}
 */
function recall(name) {
  try {
    return window.localStorage.getItem(STORED + name);
  } catch {
    return null;
  }
}
