// Random inputs with a printed seed, and runs made of them.
import { Run } from "../../assets/js/core/run.js";

const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
console.log(`# seed ${seed}: run again with SEED=${seed}`);
let state = seed;

/** A number from 0 to below 1 (mulberry32). */
export function random() {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}

/** A whole number from 0 to below `count`. */
export const below = (count) => Math.floor(random() * count);

export const times = (count, make) => Array.from({ length: count }, (_, i) => make(i));

export const base64 = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");

/** The cells of one layer as the server sends them, and the plain values they are made of. */
export function randomCells(numTokens, numGroups) {
  const width = [1, 2, 4, 8].find((size) => size * 8 >= numGroups);
  const groups = times(numTokens, () => times(numGroups, () => random() < 0.3));
  const bytes = new Uint8Array(numTokens * width);
  groups.forEach((row, pos) => {
    row.forEach((member, group) => {
      if (member) bytes[pos * width + (group >> 3)] |= 1 << (group & 7);
    });
  });
  const probabilities = Uint8Array.from({ length: numTokens * numGroups }, () => below(256));
  const entropy = Uint8Array.from({ length: numTokens }, () => below(256));
  const payload = {
    width,
    membership: base64(bytes),
    probabilities: base64(probabilities),
    entropy: base64(entropy),
  };
  return { payload, groups, probabilities, entropy };
}

/** A run payload of random contents with the plain arrays it is made of. */
export function randomRun({ numTokens = 40, layerIds = [3, 5, 9], numGroups = 8, cells = {} } = {}) {
  const tops = Uint8Array.from({ length: layerIds.length * numTokens }, () => below(numGroups));
  const losses = { full: times(numTokens - 1, random), focus: times(numTokens - 1, random) };
  const parts = [{ heads: [], top_k: 1, window: 4, full: false, retained_pairs: 0.5 }];
  const layers = layerIds.map((layer) => {
    return { layer, retained_pairs: random(), dominance: random(), sliding_window: null, parts };
  });
  const payload = {
    run: { run_id: "run", changes: [], config: { num_groups: numGroups, window: 4, num_sinks: 2 } },
    num_layers: layerIds.length,
    layer_ids: layerIds,
    pieces: times(numTokens, (pos) => ` w${pos}`),
    top: base64(tops),
    groups: [],
    layers,
    full_layers: [],
    losses: { full: base64(Float32Array.from(losses.full)), focus: base64(Float32Array.from(losses.focus)) },
    quality: null,
    timings: [
      { mode: "full", stage: "attention", median: 10 },
      { mode: "focus", stage: "attention", median: 5 },
    ],
    cells,
  };
  const requests = [];
  const answers = {};
  const ask = async (what, details) => {
    requests.push([what, details]);
    return answers[what] ? answers[what](details) : { error: "no answer" };
  };
  return { run: new Run(payload, ask), payload, tops, losses, requests, answers };
}
