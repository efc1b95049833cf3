// @ts-check
// One training's curve: its columns of numbers, which grow with every answer, and their smoothing.
/** @import { CurvePayload } from "../core/payloads.js" */

/**
 * A column without a value in some steps.
 * @typedef {Exclude<keyof CurvePayload, "step" | "stride" | "last">} Column
 */

const COLUMNS = /** @type {Column[]} */ ([
  "loss",
  "layer_error",
  "dominance",
  "dominance_max",
  "retained_pairs",
  "tokens_per_second",
  "learning_rate",
]);

/** A training minimises one of these; what no shown training has values for is left out. */
export const DEPENDS_ON_LOSS = ["loss", "perplexity", "layer_error"];

const SMOOTHED_SHARE = 30;

/**
 * Exponential mean that starts unbiased; its reach is fixed by the planned steps, so the drawn past never changes.
 * @param {(number | null)[]} values
 * @param {number} reach
 */
function smooth(values, reach) {
  const decay = 1 - 1 / reach;
  let sum = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = decay * sum + value;
    weight = decay * weight + 1;
    return sum / weight;
  });
}

// One training's columns of one mode; grows by what the server sends.
export class Curve {
  constructor() {
    /** @type {Record<Column, (number | null)[]> & { step: number[] }} */
    this.columns = {
      step: [],
      loss: [],
      layer_error: [],
      dominance: [],
      dominance_max: [],
      retained_pairs: [],
      tokens_per_second: [],
      learning_rate: [],
    };
    this.stride = 1;
    this.last = 0;
  }

  /** @param {CurvePayload} part */
  append(part) {
    this.columns.step = this.columns.step.concat(part.step);
    for (const name of COLUMNS) this.columns[name] = this.columns[name].concat(part[name] ?? []);
    this.stride = Math.max(this.stride, part.stride);
    this.last = part.last;
  }

  get length() {
    return this.columns.step.length;
  }

  /**
   * @param {Column} column
   * @param {number} steps
   */
  smoothed(column, steps) {
    const reach = Math.max(3, Math.min(50, steps / SMOOTHED_SHARE)) / this.stride;
    return smooth(this.columns[column], Math.max(1, reach));
  }

  /** @param {number} step */
  indexAt(step) {
    const steps = this.columns.step;
    let low = 0;
    let high = steps.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
