// @ts-check
// A stored run in the list of the Runs tab: its name, facts, tags and numbers.
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { hintButton } from "../core/tooltip.js";
import { runs as text } from "../strings/runs.js";
/** @import { RunCardPayload } from "../core/payloads.js" */
/** @import { Tooltip } from "../core/tooltip.js" */

/** @param {{ name: string, title: string }} run */
export const nameOf = (run) => run.name || run.title;

/** @param {{ run_id: string }} run */
export const runAddress = (run) => `?run=${encodeURIComponent(run.run_id)}`;

/**
 * @param {{ run_id: string }} run
 * @param {{ run_id: string }} other
 */
export const compareAddress = (run, other) =>
  `${runAddress(run)}&view=compare&part=runs&with=${encodeURIComponent(other.run_id)}`;

/**
 * @param {RunCardPayload} run
 * @param {Tooltip} tooltip
 * @param {(tag: string) => unknown} filterBy
 */
export const runWords = (run, tooltip, filterBy) =>
  el(
    "div",
    { class: "fx-runs-words" },
    heading(run),
    facts(run, tooltip),
    run.note ? el("p", { class: "fx-runs-note" }, run.note) : null,
    tags(run, filterBy),
  );

/** @param {RunCardPayload} run */
function heading(run) {
  const link = el("a", { href: runAddress(run), class: "fx-runs-name" }, nameOf(run));
  return el("h3", { class: "fx-subtitle" }, link, run.name ? el("small", { class: "fx-muted" }, run.title) : null);
}

/**
 * @param {RunCardPayload} run
 * @param {Tooltip} tooltip
 */
function facts(run, tooltip) {
  const parts = [
    run.owner ? text.madeBy(format.date(run.created_at), run.owner) : format.date(run.created_at),
    text.tokens(format.count(run.num_tokens), run.added_tokens),
    run.model_id,
    run.centroids_name,
    text.setting(run.config),
  ];
  const items = parts.map((part, i) =>
    el("li", {}, part, i === parts.length - 1 ? hintButton(tooltip, text.settingSubject, text.settingHint) : null),
  );
  return el("ul", { class: "fx-facts" }, items, el("li", { class: "fx-runs-id" }, run.run_id));
}

/**
 * @param {RunCardPayload} run
 * @param {(tag: string) => unknown} filterBy
 */
function tags(run, filterBy) {
  if (run.tags.length === 0) return null;
  return el(
    "div",
    { class: "fx-runs-tags" },
    run.tags.map((tag) => buttonOf(tag, () => filterBy(tag), { class: "fx-tag", "aria-label": text.tagLabel(tag) })),
  );
}

/**
 * Perplexities, pairs computed and the largest group.
 * @param {RunCardPayload} run
 * @param {Tooltip} tooltip
 */
export function runNumbers(run, tooltip) {
  /** @param {string} label @param {string} hint @param {string} value */
  const line = (label, hint, value) =>
    el("div", {}, el("dt", {}, label, hintButton(tooltip, label, hint)), el("dd", {}, value));
  const both = `${format.perplexity(run.perplexity_full)}${text.arrow}${format.perplexity(run.perplexity_focus)}`;
  return el(
    "dl",
    { class: "fx-runs-numbers" },
    line(text.perplexity, text.perplexityHint, both),
    line(text.pairs, text.pairsHint, format.percent(run.retained_pairs)),
    line(text.largest, text.largestHint, format.percent(run.dominance)),
  );
}
