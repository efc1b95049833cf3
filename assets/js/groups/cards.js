// @ts-check
// The groups of the open layer, one card each: size, certainty, word classes, typical tokens and examples.
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupLabel, visibleToken } from "../core/labels.js";
import { selectGroup, selectedPerGroup } from "../core/selection.js";
import { contextLine } from "../core/token-text.js";
import { hintButton } from "../core/tooltip.js";
import { groupChip } from "../core/widgets.js";
import { shortClass } from "../core/word-classes.js";
import { groupFlags } from "./flags.js";
import { GroupName, nameRule } from "./name.js";
import { common } from "../strings/common.js";
import { groups as groupsText } from "../strings/groups.js";
import { legend as legendText } from "../strings/tokens.js";
/** @import { GroupPayload, GroupsPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { Tooltip } from "../core/tooltip.js" */
/** @import { Child, UiEvent } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */

const text = groupsText.cards;

const EXAMPLES = 3;

/** @typedef {Record<"node" | "button" | "state" | "hits", HTMLElement>} Card */

export class GroupCards {
  /** @type {GroupsPayload} */
  data;
  /** @type {Card[]} */
  cards;
  /** @type {GroupsPayload | undefined} */
  legendOf;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.title = el("h3", { class: "fx-subtitle" });
    this.legend = el("ul", { class: "fx-class-legend", "aria-label": text.legend });
    this.list = el("div", { class: "fx-group-cards" });
    const heading = el(
      "p",
      { class: "fx-class-heading" },
      text.legend,
      hintButton(app.tooltip, text.legend, common.wordClassHint),
    );
    this.node = el(
      "section",
      { "data-testid": "fx-group-cards" },
      this.title,
      el("p", { class: "fx-help" }, text.help),
      heading,
      this.legend,
      this.list,
    );
  }

  /** @param {GroupsPayload} data */
  update(data) {
    const { run, layerIndex } = this.app;
    this.title.textContent = text.title(run.layerIds[layerIndex]);
    this.data = data;
    if (this.legendOf !== data) this.drawLegend();
    const examples = exampleTokens(run, layerIndex);
    this.cards = data.groups[layerIndex].map((group, index) => this.card(group, index, examples[index]));
    this.list.replaceChildren(...this.cards.map((card) => card.node));
    this.selectionChanged();
  }

  drawLegend() {
    this.legendOf = this.data;
    const entries = this.data.class_names.map((name, index) =>
      el(
        "li",
        {},
        el("span", { class: `fx-class-key fx-class-${index}`, "aria-hidden": "true" }),
        common.wordClasses[name],
      ),
    );
    this.legend.replaceChildren(...entries.filter((_, index) => this.data.class_shares[index] > 0));
  }

  // Cards stay; only what a selection changes is touched.
  selectionChanged() {
    const { run, layerIndex, selection } = this.app;
    const hits = selectedPerGroup(run, layerIndex, selection);
    const chosen =
      selection && selection.origin.kind === "group" && selection.origin.layer === run.layerIds[layerIndex]
        ? selection.origin.group
        : null;
    this.cards.forEach((card, group) => {
      card.button.setAttribute("aria-pressed", String(group === chosen));
      card.state.textContent = group === chosen ? text.selected : text.select;
      card.node.classList.toggle("fx-chosen", group === chosen);
      card.hits.textContent =
        selection !== null && chosen === null ? text.hit(format.count(hits[group]), format.count(selection.size)) : "";
    });
  }

  /**
   * @param {GroupPayload} group
   * @param {number} index
   * @param {number[]} examples
   * @returns {Card}
   */
  card(group, index, examples) {
    const state = el("span", { class: "fx-button" });
    const hits = el("p", { class: "fx-muted fx-card-hits" });
    const choose = () => this.app.toggleSelection(selectGroup(this.app.run, this.app.layerIndex, index));
    const button = buttonOf(
      [
        groupChip(index),
        el("span", { class: "fx-group-name" }, text.pressed(groupLabel(index))),
        groupFlags(group),
        state,
      ],
      choose,
      { class: "fx-group-choose", "data-group": index, disabled: group.tokens === 0 },
    );
    const content =
      group.tokens === 0 ? [el("p", { class: "fx-muted" }, text.empty)] : this.content(group, index, examples);
    const node = el(
      "article",
      { class: "fx-group-card", "data-group": index, "aria-label": text.pressed(groupLabel(index)) },
      button,
      hits,
      content,
    );
    return { node, button, state, hits };
  }

  /**
   * @param {GroupPayload} group
   * @param {number} index
   * @param {number[]} examples
   */
  content(group, index, examples) {
    const { run, layerIndex, tooltip } = this.app;
    const { data } = this;
    const hint = text.characteristicHint(format.count(Math.round(data.prior_size)), format.percent(data.most_q));
    return [
      part(groupsText.names.title, hintButton(tooltip, groupsText.names.title, nameRule(this.app)), [
        new GroupName(this.app, index).node,
      ]),
      facts(group, run.numGroups),
      part(text.classes, null, classBar(group, data, tooltip)),
      part(text.characteristic, hintButton(tooltip, text.characteristic, hint), characteristic(group)),
      part(text.frequent, null, frequent(run.groups[layerIndex][index].tokens)),
      part(text.examples, hintButton(tooltip, text.examples, text.examplesHint), this.examples(examples)),
    ];
  }

  /** @param {number[]} positions */
  examples(positions) {
    const { app } = this;
    return el(
      "ul",
      { class: "fx-examples" },
      positions.map((pos) =>
        el(
          "li",
          {},
          buttonOf(contextLine(app.run, pos), () => app.goToToken(pos), {
            class: "fx-example",
            title: text.goTo(format.count(pos)),
          }),
        ),
      ),
    );
  }
}

/**
 * @param {string} title
 * @param {Node | null} hint
 * @param {...(Child | Child[])} content
 */
const part = (title, hint, ...content) =>
  el("div", { class: "fx-card-part" }, el("h4", { class: "fx-card-part-title" }, title, hint), content.flat());

/**
 * @param {GroupPayload} group
 * @param {number} numGroups
 */
function facts(group, numGroups) {
  /**
   * @param {string} label
   * @param {string} value
   * @param {string} detail
   * @param {"share" | "confidence" | "purity" | "entropy"} column
   */
  const fact = (label, value, detail, column) =>
    el(
      "div",
      { title: groupsText.finder.columns[column][1] },
      el("dt", {}, label),
      el("dd", {}, value),
      el("dd", { class: "fx-muted" }, detail),
    );
  return el(
    "dl",
    { class: "fx-group-facts" },
    fact(text.share, format.percent(group.share, 1), text.even(format.ratio(group.balance)), "share"),
    fact(
      text.confidence,
      format.percent(/** @type {number} */ (group.confidence)),
      text.certain(format.percent(1 / numGroups)),
      "confidence",
    ),
    fact(
      text.purity,
      format.percent(/** @type {number} */ (group.purity)),
      text.shuffledMean(format.percent(/** @type {number} */ (group.null_mean))),
      "purity",
    ),
    fact(text.entropy, format.decimal(/** @type {number} */ (group.entropy), 2), text.nats, "entropy"),
  );
}

/**
 * @param {GroupPayload} group
 * @param {GroupsPayload} data
 * @param {Tooltip} tooltip
 */
function classBar(group, data, tooltip) {
  const shares = group.classes
    .map((count, index) => ({ index, count, share: count / group.tokens }))
    .filter(({ count }) => count > 0);
  /** @param {number} index */
  const name = (index) => common.wordClasses[data.class_names[index]];
  const commonest = [...shares].sort((a, b) => b.share - a.share);
  /** @param {UiEvent<MouseEvent>} event @param {{ index: number, share: number, count: number }} given */
  const show = (event, { index, share, count }) =>
    tooltip.show(
      el(
        "p",
        { class: "fx-tooltip-text" },
        `${text.part(name(index), format.percent(share))} (${format.count(count)})`,
      ),
      event.target.getBoundingClientRect(),
    );
  const label = text.mix(commonest.map(({ index, share }) => text.part(name(index), format.percent(share))).join(", "));
  const bar = el(
    "div",
    { class: "fx-class-bar", role: "img", "aria-label": label },
    shares.map((item) =>
      el("span", {
        class: `fx-class-${item.index}`,
        style: `flex-grow:${item.count}`,
        onmouseenter: (event) => show(event, item),
        onmouseleave: () => tooltip.hide(),
      }),
    ),
  );
  const three = commonest
    .slice(0, 3)
    .map(({ index, share }) => text.part(shortClass(data.class_names[index]), format.percent(share)));
  return [bar, el("p", { class: "fx-muted fx-class-words" }, three.join(" · "))];
}

/** @param {GroupPayload} group */
function characteristic(group) {
  if (group.characteristic.length === 0) return el("span", { class: "fx-muted" }, text.none);
  return el(
    "span",
    { class: "fx-frequent" },
    group.characteristic.map(([piece, z, uses]) =>
      el("code", { title: text.score(format.decimal(z, 1), format.count(uses)) }, visibleToken(piece)),
    ),
  );
}

/** @param {[string, number][]} tokens */
function frequent(tokens) {
  return el(
    "span",
    { class: "fx-frequent" },
    tokens
      .slice(0, 6)
      .map(([piece, count]) => el("code", { title: legendText.times(format.count(count)) }, visibleToken(piece))),
  );
}

/**
 * For each group, from each part of its tokens in text order, the most certain one.
 * @param {Run} run
 * @param {number} layerIndex
 */
function exampleTokens(run, layerIndex) {
  const members = range(run.numGroups).map(() => /** @type {number[]} */ ([]));
  for (let pos = 0; pos < run.numTokens; pos += 1) members[run.top(layerIndex, pos)].push(pos);
  return members.map((tokens) => {
    const size = Math.max(1, Math.ceil(tokens.length / EXAMPLES));
    const parts = range(EXAMPLES)
      .map((i) => tokens.slice(i * size, (i + 1) * size))
      .filter((some) => some.length > 0);
    return parts.map((some) =>
      some.reduce((best, pos) =>
        /** @type {number} */ (run.confidence(layerIndex, pos)) >
        /** @type {number} */ (run.confidence(layerIndex, best))
          ? pos
          : best,
      ),
    );
  });
}
