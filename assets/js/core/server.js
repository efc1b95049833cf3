// @ts-check
// Calls of the server's functions.
import { common } from "../strings/common.js";

// A failing call becomes the same {error} object the server itself would send.
export const callServer = async (call) => {
  try {
    const answer = await call();
    return answer || { error: common.serverSilent("empty") };
  } catch (error) {
    return { error: common.serverSilent(error.message || String(error)) };
  }
};
