// @ts-check
// One card per group of the open layer; pressing a card selects the group.
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupName } from "../core/group-names.js";
import { visibleToken } from "../core/labels.js";
import { selectedPerGroup } from "../core/selection.js";
import { hintButton } from "../core/tooltip.js";
import { groupChip, shareBar } from "../core/widgets.js";
import { groups as groupsText } from "../strings/groups.js";
import { reading as readingText, legend as text } from "../strings/tokens.js";
/** @import { RunGroupPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { Selection } from "../core/selection.js" */
/** @import { Tooltip } from "../core/tooltip.js" */

export class Legend {
  /**
   * @param {Tooltip} tooltip
   * @param {(group: number) => unknown} onclick
   */
  constructor(tooltip, onclick) {
    this.pressed = onclick;
    this.list = el("div", { class: "fx-legend-list" });
    this.node = el(
      "aside",
      { class: "fx-legend", "data-testid": "fx-legend", "aria-label": text.title },
      el("h3", { class: "fx-subtitle" }, text.title, hintButton(tooltip, text.title, text.hint)),
      this.list,
    );
    /** @type {HTMLButtonElement[]} */
    this.cards = [];
  }

  /**
   * @param {Run} run
   * @param {number} layerIndex
   * @param {Selection | null} selection
   */
  update(run, layerIndex, selection) {
    const origin =
      selection && selection.origin.kind === "group" && selection.origin.layer === run.layerIds[layerIndex]
        ? selection.origin
        : null;
    if (this.cards.length !== run.numGroups) this.createCards(run.numGroups);
    const hits = selectedPerGroup(run, layerIndex, selection);
    this.cards.forEach((card, group) => {
      card.setAttribute("aria-pressed", String(origin !== null && group === origin.group));
      card.replaceChildren(
        ...cardContent(
          group,
          groupName(run, layerIndex, group),
          run.groups[layerIndex][group],
          selection === null ? null : { count: hits[group], of: selection.size },
        ),
      );
    });
  }

  /**
   * Cards are kept across layers so that keyboard focus survives a layer switch.
   * @param {number} count
   */
  createCards(count) {
    this.cards = range(count).map((group) =>
      buttonOf(null, () => this.pressed(group), { class: "fx-group", "data-group": group }),
    );
    this.list.replaceChildren(...this.cards);
  }
}

/**
 * @param {number} group
 * @param {string} name
 * @param {RunGroupPayload} statistics
 * @param {{ count: number, of: number } | null} selected
 */
function cardContent(group, name, statistics, selected) {
  const { share, confidence } = statistics;
  return [
    el(
      "span",
      { class: "fx-group-head" },
      groupChip(group),
      el("span", { class: "fx-group-share" }, text.share(format.percent(share))),
      el(
        "span",
        { class: "fx-group-bar" },
        shareBar(share, `g${group}`),
        selected === null ? null : selectedCount(selected),
      ),
      el(
        "span",
        { class: "fx-muted", title: text.confidenceTitle },
        confidence === null ? "" : text.confidence(format.percent(confidence)),
      ),
    ),
    el(
      "span",
      { class: "fx-group-line" },
      el("span", { class: "fx-group-title" }, name),
      frequentTokens(statistics.tokens),
    ),
  ];
}

/** @param {{ count: number, of: number }} given */
function selectedCount({ count, of }) {
  return el(
    "span",
    { class: "fx-group-hits", title: groupsText.cards.hit(format.count(count), format.count(of)) },
    readingText.selectedCount(format.count(count)),
  );
}

/** @param {[string, number][]} tokens */
function frequentTokens(tokens) {
  if (tokens.length === 0) return el("span", { class: "fx-muted" }, text.noTokens);
  return el(
    "span",
    { class: "fx-frequent" },
    tokens.map(([piece, count]) => el("code", { title: text.times(format.count(count)) }, visibleToken(piece))),
  );
}
