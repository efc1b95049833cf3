// @ts-check
// Scores over temperature, chosen by hand so that every token prefers group A at first.

export const SCORES = {
  pieces: ["ship", "sails", "sea", ",", ".", "the"],
  scores: [
    [2.0, 1.2, -0.5],
    [1.9, 0.6, -0.2],
    [1.8, 1.5, 0.1],
    [1.6, -0.4, 1.1],
    [1.5, -0.3, 1.3],
    [1.7, 0.2, 0.4],
  ],
};
