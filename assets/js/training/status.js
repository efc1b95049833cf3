// @ts-check
// The statuses of a training that is still at work.

export const LIVE = ["running", "stopping"];
