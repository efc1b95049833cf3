// @ts-check
// How many repeats a timing needs.

// Times repeated less often have no spread to judge a difference by.
export const FEWEST_REPEATS = 3;
