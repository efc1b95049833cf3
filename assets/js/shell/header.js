// @ts-check
// The header above the views: the run's title, settings and key numbers.
import { buttonOf, el, newId } from "../core/dom.js";
import { format } from "../core/format.js";
import { budgetChip, budgetGroups, budgetRows } from "../core/heads.js";
import { hintButton } from "../core/tooltip.js";
import { common } from "../strings/common.js";
import { heads } from "../strings/heads.js";
import { shell as text } from "../strings/shell.js";
/** @import { Run } from "../core/run.js" */
/** @import { Tooltip } from "../core/tooltip.js" */
/** @import { Attributes, Child, UiEvent } from "../core/types.js" */

const LONG_MS = 10_000; // from which seconds are said

/**
 * What the run's budget made of layers and heads, in short; all of it on hover, focus and tap.
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function budget(run, tooltip) {
  if (!run.config.budget) return null;
  const groups = budgetGroups(run);
  return chip(tooltip, budgetChip(run), { "data-testid": "fx-budget" }, [
    el("p", { class: "fx-tooltip-text" }, heads.budgetHint),
    el("p", { class: "fx-tooltip-text" }, groups.length > 0 ? budgetRows(groups) : heads.budgetNone),
  ]);
}

/**
 * What the centroids were trained on, cut by the page; all of it on hover, focus and tap.
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function trainedOn(run, tooltip) {
  if (run.trainedOn.length === 0) return null;
  const words = text.header.trainedOn(run.trainedOn.join(", "));
  return chip(tooltip, words, { class: "fx-header-chip fx-header-cut", "data-testid": "fx-trained-on" }, [
    el("p", { class: "fx-tooltip-text" }, words),
    el("p", { class: "fx-tooltip-text" }, text.header.trainedOnHint),
  ]);
}

/**
 * That the times still change, while the passes of a long text are repeated.
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function timing(run, tooltip) {
  if (!run.isTiming) return null;
  const words = text.header.timing;
  return chip(tooltip, words.chip(run.timing("focus", "end_to_end")?.repeats ?? 0), { "data-testid": "fx-timing" }, [
    el("p", { class: "fx-tooltip-text" }, words.hint),
  ]);
}

/**
 * A few words that say all on hover, focus and tap.
 * @param {Tooltip} tooltip
 * @param {string} words
 * @param {Attributes} attributes
 * @param {Child[]} content
 */
function chip(tooltip, words, attributes, content) {
  /** @param {UiEvent<Event>} event */
  const show = (event) => tooltip.show(content, event.currentTarget.getBoundingClientRect());
  return buttonOf(words, show, {
    class: "fx-header-chip",
    "aria-describedby": tooltip.id,
    onmouseenter: show,
    onfocus: show,
    onmouseleave: () => tooltip.hide(),
    onblur: () => tooltip.hide(),
    ...attributes,
  });
}

/**
 * A line of what was run on what; open, all of it.
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function about(run, tooltip) {
  const { info, config } = run;
  const words = text.header;
  const brief = [
    words.tokens(format.count(run.numTokens), info.added_tokens),
    info.model_id,
    words.centroids(info.centroids_name),
    words.groups(config.num_groups),
    words.topK(config.top_k),
    words.window(config.window),
  ];
  const machine = hintButton(tooltip, words.factsSubject, words.factsHint(info.device, info.dtype, info.backend));
  const facts = [info.device, info.dtype, [info.backend, machine], words.seed(info.seed), format.date(info.created_at)];
  /** @param {Child | Child[]} fact */
  const item = (fact) => el("li", {}, fact);
  return el(
    "details",
    { class: "fx-about" },
    el("summary", {}, el("ul", { class: "fx-facts" }, brief.map(item))),
    el("p", { class: "fx-settings" }, info.setting, hintButton(tooltip, info.setting, words.settingsHint)),
    el("ul", { class: "fx-facts" }, facts.map(item)),
  );
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
  const hinted = { ...words, hint: run.slides ? words.slidingHint : words.hint };
  return card(tooltip, hinted, format.percent(run.meanKept()), detail);
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function dominanceCard(run, tooltip) {
  const words = text.cards.dominance;
  const worst = run.layers.reduce((most, layer) => (layer.dominance > most.dominance ? layer : most));
  const detail = words.detail(format.percent(worst.dominance), worst.layer);
  const hinted = { ...words, hint: words.hint(format.percent(1 / run.numGroups)) };
  return card(tooltip, hinted, format.percent(run.meanDominance()), detail);
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
function attentionCard(run, tooltip) {
  const words = text.cards.attention;
  const full = run.timing("full", "attention")?.median;
  const focus = run.timing("focus", "attention")?.median; // with finding the groups
  if (!full || !focus) return card(tooltip, words, common.notMeasured, "");
  const pass = run.timeRatio("end_to_end");
  return card(
    tooltip,
    words,
    full < LONG_MS
      ? change(format.msNumber(full), format.ms(focus))
      : change(format.decimal(full / 1000, 1), format.seconds(focus / 1000)),
    words.detail(format.ratio(focus / full), pass === null ? common.notMeasured : format.ratio(pass)),
  );
}

/**
 * A note as a chip: its beginning, cut by the page, and all of it on hover, focus and tap.
 * @param {Tooltip} tooltip
 * @param {string} note
 */
const noteChip = (tooltip, note) =>
  chip(tooltip, withoutOption(note), { class: "fx-header-chip fx-header-note", "data-testid": "fx-note" }, [
    el("p", { class: "fx-tooltip-text" }, withoutOption(note)),
  ]);

/**
 * What the command line calls a setting means nothing on a page.
 * @param {string} note
 */
const withoutOption = (note) => note.replace(/ \(--[a-z][^)]*\)/g, "");

/**
 * Unfolds on a narrow screen what keeps the text from beginning on it; a wide one shows all of it, and not the button.
 * @param {string} ids of what it unfolds
 */
function detailsButton(ids) {
  const toggle = () => {
    const header = /** @type {HTMLElement} */ (button.closest(".fx-header"));
    const isOpen = header.toggleAttribute("data-open");
    button.setAttribute("aria-expanded", String(isOpen));
  };
  const attributes = { class: "fx-button fx-header-more", "aria-expanded": "false", "aria-controls": ids };
  const button = buttonOf(text.header.details, toggle, { ...attributes, "aria-label": text.header.detailsLabel });
  return button;
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 * @param {Node | null} [action]
 * @param {Node | null} [answer] what the run shows, in sentences
 */
export function runHeader(run, tooltip, action = null, answer = null) {
  const [aboutId, cardsId] = [newId("about"), newId("cards")];
  return el(
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
      detailsButton(`${aboutId} ${cardsId}`),
    ),
    el(
      "div",
      { class: "fx-header-about", id: aboutId },
      about(run, tooltip),
      budget(run, tooltip),
      el("div", { class: "fx-header-late" }, lateChips(run, tooltip)),
      (run.info.notes || []).map((note) => noteChip(tooltip, note)),
    ),
    el(
      "div",
      { class: "fx-cards", id: cardsId },
      [perplexityCard, pairsCard, dominanceCard, attentionCard].map((make) => make(run, tooltip)),
    ),
    answer,
  );
}

/**
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
const lateChips = (run, tooltip) => [timing(run, tooltip), trainedOn(run, tooltip)];

/**
 * Draws anew what is known of a run later than the rest; buttons of the header keep the focus.
 * @param {Element} header
 * @param {Run} run
 * @param {Tooltip} tooltip
 */
export function renewHeader(header, run, tooltip) {
  const late = lateChips(run, tooltip).filter((chip) => chip !== null);
  header.querySelector(".fx-header-late")?.replaceChildren(...late);
  header.querySelector(".fx-cards")?.lastElementChild?.replaceWith(attentionCard(run, tooltip));
}
