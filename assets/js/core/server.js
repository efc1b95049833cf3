// @ts-check
// Calls of the server's functions.
import { common } from "../strings/common.js";
/** @import { Answer } from "./types.js" */

/**
 * The answer of a call; a failing call becomes the same {error} object that the server itself would send.
 * @template T
 * @param {() => Promise<Answer<T>>} call
 * @returns {Promise<Answer<T>>}
 */
export async function callServer(call) {
  try {
    const answer = await call();
    return answer || { error: common.serverSilent("empty") };
  } catch (error) {
    return { error: common.serverSilent(error.message || String(error)) };
  }
}
