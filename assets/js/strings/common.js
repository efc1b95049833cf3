// @ts-check
// Labels and sentences that several views share.
/** @import { Words } from "./words.js" */

const SHOWN_DIGITS = 6; // of a budget's id, as on the command line

/**
 * A count with the word for what is counted, in the plural unless it is one.
 * @param {string | number} count
 * @param {string} word
 */
export const counted = (count, word) => `${count} ${word}${String(count) === "1" ? "" : "s"}`;

/**
 * A count and which of the tokens the tokenizer added, as in "461 tokens with <bos>".
 * @param {string} count
 * @param {string[]} [added] none in what older versions recorded
 */
export const withAdded = (count, added = []) => (added.length > 0 ? `${count} with ${added.join(" ")}` : count);

/**
 * @param {string} count
 * @param {string[]} [added]
 */
export const tokensInWords = (count, added = []) => withAdded(counted(count, "token"), added);

/**
 * Nothing for none; two budgets of as many exceptions are told apart by their ids.
 * @param {number} count
 * @param {string} [id]
 */
const budgetOf = (count, id) =>
  count ? `, budget of ${counted(count, "exception")}${id ? ` (${id.slice(0, SHOWN_DIGITS)})` : ""}` : "";

/** @satisfies {Words} */
export const common = {
  plotMissing:
    "The charts' script could not be loaded: the server does not answer. Check that it still runs, then try again.",
  serverSilent: (detail) => `The server gave no usable answer (${detail}).`,
  retry: "Try again",
  hintLabel: (subject) => `What does “${subject}” mean?`,
  notMeasured: "not measured",
  nats: {
    subject: "nats",
    hint:
      "The unit of a loss. The loss at a token is the model's surprise: minus the natural logarithm of the " +
      "probability it gave to the token that came. 0 nats: it was certain; 0.69 nats: it gave one half. A loss 0.1 " +
      "nats higher means a perplexity 10.5 % higher.",
  },
  growing: ({ window_growth: growth }) => (growth ? ` growing (${growth.join(" to ")})` : ""),
  exceptions: ({ budget, budget_id: id }) => budgetOf(budget?.length ?? 0, id),
  budgetOf,
  interval: (low, high) => `${low} to ${high}`,
  interval95: (ends) => `95 % interval ${ends}`,
  noInterval: "no interval",
  group: (label) => `Group ${label}`,
  selection: {
    token: (pos) => `token ${pos}`,
    range: (first, last) => `tokens ${first} to ${last}`,
    group: (label, layer) => `group ${label} of layer ${layer}`,
    tokens: "chosen tokens",
    bar: (label, count) => (count === "1" ? `Selected: ${label}` : `Selected: ${label} (${count} tokens)`),
    none: "Nothing selected.",
    help: " What you choose in one view is marked in all of them.",
    clear: "Clear selection",
  },
  realRank: (piece, rank) => `${piece}: rank ${rank}`,
  wordClasses: /** @type {Record<string, string>} */ ({
    punctuation: "punctuation",
    whitespace: "spaces and line ends",
    determiner: "determiner (the, this)",
    preposition: "preposition (of, in)",
    conjunction: "conjunction (and, that)",
    pronoun: "pronoun (she, who)",
    auxiliary: "auxiliary verb (is, would)",
    function: "other function word (not, also)",
    number: "number",
    name: "name",
    content: "content word",
    continuation: "rest of a word",
    other: "other sign",
  }),
  wordClassHint:
    "Classes come from closed lists of English words, capital letters and punctuation, without a parser: every word " +
    "has the class of its most frequent use. A token that continues a word is “rest of a word”. Text in other " +
    "languages falls mostly under content words, names and punctuation.",
};
