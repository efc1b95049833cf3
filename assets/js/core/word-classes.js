// @ts-check
// Names of word classes.
import { common } from "../strings/common.js";

/**
 * Without the examples in brackets.
 * @param {string} name
 */
export const shortClass = (name) => common.wordClasses[name].replace(/ \(.*/, "");
