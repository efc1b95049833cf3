// @ts-check
// The header above the views: the run's title, settings and key numbers.
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { budgetChip, budgetGroups, budgetRows } from "../core/heads.js";
import { hintButton } from "../core/tooltip.js";
import { common } from "../strings/common.js";
import { heads } from "../strings/heads.js";
import { shell as text } from "../strings/shell.js";
/** @import { ConfigPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { Tooltip } from "../core/tooltip.js" */
/** @import { Child, UiEvent } from "../core/types.js" */

/** @param {ConfigPayload} config */
function settings(config) {
  const words = text.header;
  return [
    words.groups(config.num_groups),
    words.topK(config.top_k),
    words.window(config.window),
    words.sinks(config.num_sinks),
    ...(config.text_sinks === undefined ? [] : [words.textSinks(String(config.text_sinks))]),
    words.assignment(config.assignment),
  ].join(", ");
}

/**
 * What the run's budget made of layers and heads, in short; all of it on hover, focus and tap.
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function budget(run, tooltip) {
  if (!run.config.budget) return null;
  const groups = budgetGroups(run);
  /** @param {UiEvent<Event>} event */
  const show = (event) =>
    tooltip.show(
      [
        el("p", { class: "fx-tooltip-text" }, heads.budgetHint),
        el("p", { class: "fx-tooltip-text" }, groups.length > 0 ? budgetRows(groups) : heads.budgetNone),
      ],
      event.currentTarget.getBoundingClientRect(),
    );
  return buttonOf(budgetChip(groups), show, {
    class: "fx-budget",
    "data-testid": "fx-budget",
    "aria-describedby": tooltip.id,
    onmouseenter: show,
    onfocus: show,
    onmouseleave: () => tooltip.hide(),
    onblur: () => tooltip.hide(),
  });
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function facts(run, tooltip) {
  const { info } = run;
  const hint = hintButton(
    tooltip,
    text.header.factsSubject,
    text.header.factsHint(info.device, info.dtype, info.backend),
  );
  return [
    info.model_id,
    text.header.centroids(info.centroids_name),
    text.header.tokens(format.count(run.numTokens)),
    info.device,
    info.dtype,
    [info.backend, hint],
    text.header.seed(info.seed),
    format.date(info.created_at),
  ];
}

/**
 * @param {Tooltip} tooltip
 * @param {{ label: string, hint: string }} words
 * @param {Child | Child[]} value
 * @param {string} detail
 */
function card(tooltip, words, value, detail) {
  return el(
    "div",
    { class: "fx-card" },
    el("div", { class: "fx-card-label" }, words.label, hintButton(tooltip, words.label, words.hint)),
    el("div", { class: "fx-card-value" }, value),
    el("div", { class: "fx-card-detail" }, detail),
  );
}

/**
 * @param {string} from
 * @param {string} to
 */
const change = (from, to) => [
  el("span", { class: "fx-card-from" }, from, el("span", { class: "fx-arrow" }, text.cards.arrow)),
  to,
];

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function perplexityCard(run, tooltip) {
  const words = text.cards.perplexity;
  if (!run.quality) return card(tooltip, words, common.notMeasured, "");
  const { full, focus } = run.quality;
  return card(
    tooltip,
    words,
    change(format.perplexity(full), format.perplexity(focus)),
    words.detail(format.signedPercent(focus / full - 1)),
  );
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function pairsCard(run, tooltip) {
  const words = text.cards.pairs;
  const retained = run.layers.map((layer) => layer.retained_pairs);
  const detail = words.detail(format.percent(Math.min(...retained)), format.percent(Math.max(...retained)));
  return card(tooltip, words, format.percent(run.meanKept()), detail);
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function dominanceCard(run, tooltip) {
  const words = text.cards.dominance;
  const worst = run.layers.reduce((most, layer) => (layer.dominance > most.dominance ? layer : most));
  const detail = words.detail(format.percent(1 / run.numGroups), format.percent(worst.dominance), worst.layer);
  return card(tooltip, words, format.percent(run.meanDominance()), detail);
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function attentionCard(run, tooltip) {
  const words = text.cards.attention;
  const ratio = run.timeRatio("attention");
  const full = run.timing("full", "attention");
  const focus = run.timing("focus", "attention");
  if (ratio === null || full === null || focus === null) return card(tooltip, words, common.notMeasured, "");
  return card(
    tooltip,
    words,
    change(format.msNumber(full.median), format.ms(focus.median)),
    words.detail(format.ratio(ratio), Math.min(full.repeats, focus.repeats)),
  );
}

/** @param {string[] | null} list */
function notes(list) {
  if (!list || list.length === 0) return null;
  return el(
    "div",
    { class: "fx-notes", role: "note" },
    el("strong", {}, text.header.notes),
    el(
      "ul",
      {},
      list.map((note) => el("li", {}, note)),
    ),
  );
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 * @param {Node | null} [action]
 * @param {Node | null} [answer] what the run shows, in sentences
 */
export const runHeader = (run, tooltip, action = null, answer = null) =>
  el(
    "header",
    { class: "fx-header", "data-testid": "fx-header" },
    el(
      "div",
      { class: "fx-header-line" },
      el(
        "h2",
        { class: "fx-title", title: run.info.name ? run.info.title : null },
        run.info.name || run.info.title || text.header.untitled,
      ),
      action,
    ),
    el(
      "div",
      { class: "fx-about" },
      el(
        "p",
        { class: "fx-settings" },
        settings(run.config),
        hintButton(tooltip, settings(run.config), text.header.settingsHint),
        budget(run, tooltip),
      ),
      el(
        "ul",
        { class: "fx-facts" },
        facts(run, tooltip).map((fact) => el("li", {}, fact)),
      ),
    ),
    el(
      "div",
      { class: "fx-cards" },
      [perplexityCard, pairsCard, dominanceCard, attentionCard].map((make) => make(run, tooltip)),
    ),
    answer,
    notes(run.info.notes),
  );
