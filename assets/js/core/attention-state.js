// @ts-check
// The state of each run's attention measurement, which changes the answers about its groups.

const measuring = new WeakMap(); // run → how far the measurement of its attention was when last asked

// Told by whoever asks for the state of the measurement. It is the one thing that changes the answer about the groups.
export const setAttentionState = (run, state) => measuring.set(run, state);

export const attentionState = (run) => measuring.get(run) || "none";
