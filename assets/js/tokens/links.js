// @ts-check
// Which tokens one token may attend to in a layer, which may attend to it, and by which cause: the rule of the executed
// mask for one row and one column of it.

/**
 * What the links need of a run.
 * @typedef {{ numTokens: number, config: { window: number, num_sinks: number },
 *   shareGroup: (layerIndex: number, pos: number, other: number) => boolean }} LinkedRun
 */

export const LINK_CAUSES = ["local_only", "group_only", "local_and_group", "sink_only"];

const NEAR = { false: 0, true: 1 };

const SHARED = { false: 0, true: 2 };

// By near + shared: dropped unless the key is a sink, near, same group, both.
const CODE = [0, 1, 2, 3];

const SINK = 4;

export class Links {
  /**
   * The layer's membership must be here.
   * @param {LinkedRun} run
   * @param {number} layerIndex
   * @param {number} pos
   */
  constructor(run, layerIndex, pos) {
    const { window, num_sinks: sinks } = run.config;
    this.pos = pos;
    this.layerIndex = layerIndex;
    this.numTokens = run.numTokens;
    this.codes = new Uint8Array(run.numTokens); // 0: no attention either way; else 1 + place in LINK_CAUSES
    for (let other = 0; other < run.numTokens; other += 1) {
      const near = Math.abs(pos - other) <= window;
      const code = CODE[NEAR[near] + SHARED[run.shareGroup(layerIndex, pos, other)]];
      this.codes[other] = code === 0 && Math.min(pos, other) < sinks ? SINK : code;
    }
  }

  /**
   * null, or the cause; the token itself counts among those it may attend to.
   * @param {number} other
   */
  cause(other) {
    return this.codes[other] === 0 ? null : LINK_CAUSES[this.codes[other] - 1];
  }

  /** @param {string | null} [cause] */
  back(cause = null) {
    return this.collect(0, this.pos + 1, cause);
  }

  /** @param {string | null} [cause] */
  forward(cause = null) {
    return this.collect(this.pos + 1, this.numTokens, cause);
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {string | null} cause
   */
  collect(from, to, cause) {
    const code = cause === null ? 0 : LINK_CAUSES.indexOf(cause) + 1;
    const positions = [];
    for (let other = from; other < to; other += 1) {
      if (this.codes[other] !== 0 && (code === 0 || this.codes[other] === code)) positions.push(other);
    }
    return positions;
  }
}
