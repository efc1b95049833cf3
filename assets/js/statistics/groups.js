// @ts-check
// The groups of the open layer with intervals and baselines, their tokens, and the categories in each of them.
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { namedChip } from "../core/group-names.js";
import { groupLabel, visibleToken } from "../core/labels.js";
import { selectGroup } from "../core/selection.js";
import { hintButton } from "../core/tooltip.js";
import { choiceOf, groupChip } from "../core/widgets.js";
import { indistinctWords, isIndistinct, statCategory, statInterval } from "./numbers.js";
import { statRows } from "./rows.js";
import { statistics as text } from "../strings/statistics.js";
/** @import { CategoryColumnsPayload, CharacteristicColumnsPayload } from "../core/payloads.js" */
/** @import { LayerStatisticsPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { StatisticRow } from "./numbers.js" */
/** @import { App } from "../shell/app.js" */
/** @import { StatisticsView } from "./view.js" */
/** @import { RowOf } from "./rows.js" */

/** A category in a group. @typedef {RowOf<CategoryColumnsPayload>} CategoryRow */
/** A token of a group. @typedef {RowOf<CharacteristicColumnsPayload>} TokenRow */
/** @typedef {{ node: HTMLElement, button: HTMLElement, state: HTMLElement }} Card */

const words = text.groups;

const LEAST_SHARE = 0.01; // of the text; rarer categories are left to the export

const MOST_Q = 0.05;

const TOKENS = 8;

/** @param {number | null | undefined} share */
const percent = (share) => (share === null || share === undefined ? text.none : format.percent(share, 1));

export class StatGroups {
  /** @type {App} */
  app;
  /** @type {StatisticsView} */
  view;
  /** @type {string | null} */
  scheme;
  /** @type {Run | null} */
  shown;
  /** Index of the layer that is drawn: while another is computed it is not the open one. */
  layerIndex = 0;
  /** @type {StatisticRow[]} */
  rows;
  /** @type {TokenRow[]} */
  tokens;
  /** @type {CategoryRow[]} */
  categories;
  /** @type {Card[]} */
  cards;

  /**
   * @param {App} app
   * @param {StatisticsView} view
   */
  constructor(app, view) {
    Object.assign(this, { app, view, scheme: null });
    this.title = el("h3", { class: "fx-subtitle" });
    this.list = el("div", { class: "fx-group-cards" });
    this.schemes = el("div", { class: "fx-toolbar" });
    this.scroll = el("div", {
      class: "fx-stat-scroll fx-stat-whole",
      tabindex: "0",
      role: "region",
      "aria-label": words.tableTitle,
    });
    this.rest = el("p", { class: "fx-help" });
    const table = el(
      "div",
      { class: "fx-part" },
      el("h3", { class: "fx-subtitle" }, words.tableTitle, hintButton(app.tooltip, words.tableTitle, text.qHint)),
      el("p", { class: "fx-help" }, words.tableHelp),
      this.schemes,
      this.scroll,
      this.rest,
    );
    this.body = el("div", { hidden: true }, this.title, el("p", { class: "fx-help" }, words.help), this.list, table);
    this.node = el("section", { class: "fx-stat-part", "data-testid": "fx-stat-groups" }, this.body);
  }

  async update() {
    const { app, view } = this;
    if (this.shown !== app.run) this.body.hidden = true;
    const { layerIndex } = app;
    const layer = app.run.layerIds[layerIndex];
    const answer = await view.answer("groups", "statistics_layer", { layer });
    if (answer === null || layer !== app.run.layerIds[app.layerIndex]) return;
    this.shown = app.run;
    this.layerIndex = layerIndex;
    this.body.hidden = false;
    this.title.textContent = words.title(layer);
    this.draw(answer);
  }

  /** @param {LayerStatisticsPayload} answer */
  draw(answer) {
    this.rows = statRows(answer.groups);
    this.tokens = statRows(answer.characteristic);
    this.categories = statRows(answer.categories);
    const groups = range(this.app.run.numGroups);
    this.cards = groups.map((group) => this.card(group));
    this.list.replaceChildren(...this.cards.map((card) => card.node));
    this.drawSchemes();
    this.selectionChanged();
  }

  selectionChanged() {
    const { run, selection } = this.app;
    if (this.shown !== run || !this.cards) return;
    const origin = selection && selection.origin;
    const layer = run.layerIds[this.layerIndex];
    const chosen = origin && origin.kind === "group" && origin.layer === layer ? origin.group : null;
    this.cards.forEach(({ node, button, state }, group) => {
      button.setAttribute("aria-pressed", String(group === chosen));
      state.textContent = group === chosen ? words.selected : words.select;
      node.classList.toggle("fx-chosen", group === chosen);
    });
    for (const head of this.scroll.querySelectorAll("[data-group]"))
      head.setAttribute("aria-pressed", String(Number(head.dataset.group) === chosen));
  }

  /** @param {number} group */
  toggle(group) {
    this.app.toggleSelection(selectGroup(this.app.run, this.layerIndex, group));
  }

  /**
   * @param {number} group
   * @returns {Card}
   */
  card(group) {
    const label = groupLabel(group);
    const { layerIndex } = this;
    const { run } = this.app;
    const groupRows = this.rows.filter((row) => row.group === label);
    /** @param {string} name */
    const statistic = (name) => groupRows.find((row) => row.statistic === name);
    const empty = !statistic("share")?.value;
    const state = el("span", { class: "fx-button" });
    const [chip, ...name] = namedChip(run, layerIndex, group);
    const button = buttonOf(
      [chip, el("span", { class: "fx-group-name" }, words.of(label)), ...name, state],
      () => this.toggle(group),
      { class: "fx-group-choose", "data-group": group, disabled: empty },
    );
    const content = empty
      ? [el("p", { class: "fx-muted" }, words.empty)]
      : [
          ...this.facts(statistic),
          ...groupRows.filter((row) => row.statistic === "purity").map((row) => this.leading(row)),
          ...this.pieces(label),
        ];
    const node = el("article", { class: "fx-group-card", "aria-label": words.of(label) }, button, content);
    return { node, button, state };
  }

  /** @param {(name: string) => StatisticRow | undefined} statistic */
  facts(statistic) {
    /** @param {string} name @param {string} label */
    const fact = (name, label) => {
      const row = statistic(name);
      return el(
        "div",
        {},
        el("dt", {}, label),
        el("dd", {}, percent(row?.value)),
        el("dd", { class: "fx-muted" }, statInterval(null, row?.low, row?.high) || text.noInterval),
        el("dd", { class: "fx-muted" }, words.randomBaseline(percent(row?.random))),
      );
    };
    const warning = statistic("confidence")?.warning;
    return [
      el(
        "dl",
        { class: "fx-group-facts fx-stat-two" },
        fact("share", words.share),
        fact("confidence", words.confidence),
      ),
      warning ? el("p", { class: "fx-stat-indistinct" }, warning) : null,
    ].filter(Boolean);
  }

  /** @param {StatisticRow} row */
  leading(row) {
    const [scheme, category] = row.category.split(/:(.*)/s);
    const warning = indistinctWords(row);
    return el(
      "div",
      { class: `fx-card-part${isIndistinct(row) ? " fx-stat-pale" : ""}` },
      el("h4", { class: "fx-card-part-title" }, words.leading(words.leadingNames[scheme])),
      el(
        "p",
        {},
        el("strong", { class: "fx-stat-value" }, statCategory(scheme, category)),
        ` ${percent(row.value)} `,
        el("span", { class: "fx-muted" }, `(${statInterval(row.decimals, row.low, row.high) || text.noInterval})`),
      ),
      el(
        "p",
        { class: "fx-muted fx-class-words" },
        words.baselineShares(percent(row.shuffled), percent(row.random), percent(row.window_only)),
        row.q_value === null ? null : ` · ${text.q(row.q_value)}`,
      ),
      warning ? el("p", { class: "fx-stat-indistinct" }, warning) : null,
    );
  }

  /** @param {string} label */
  pieces(label) {
    const { tooltip } = this.app;
    /** @param {string} kind */
    const of = (kind) => this.tokens.filter((row) => row.group === label && row.kind === kind).slice(0, TOKENS);
    const strong = of("characteristic").map((row) =>
      el(
        "code",
        {
          title: words.z(
            format.decimal(row.z, 1),
            text.q(row.q_value),
            format.count(row.uses),
            format.count(row.uses_in_text),
          ),
        },
        visibleToken(row.piece),
        el("small", {}, format.decimal(row.z, 1)),
      ),
    );
    const often = of("frequent").map((row) =>
      el(
        "code",
        { title: words.uses(format.count(row.uses), format.count(row.uses_in_text)) },
        visibleToken(row.piece),
        el("small", {}, format.count(row.uses)),
      ),
    );
    return [
      el(
        "div",
        { class: "fx-card-part" },
        el(
          "h4",
          { class: "fx-card-part-title" },
          words.characteristic,
          hintButton(tooltip, words.characteristic, words.characteristicHint),
        ),
        strong.length === 0
          ? el("span", { class: "fx-muted" }, words.noneStandOut)
          : el("span", { class: "fx-frequent fx-stat-pieces" }, strong),
      ),
      el(
        "div",
        { class: "fx-card-part" },
        el("h4", { class: "fx-card-part-title" }, words.frequent),
        el("span", { class: "fx-frequent fx-stat-pieces" }, often),
      ),
    ];
  }

  drawSchemes() {
    const schemes = [...new Set(this.categories.map((row) => row.scheme))];
    if (this.scheme === null || !schemes.includes(this.scheme))
      this.scheme = schemes.includes("pos") ? "pos" : schemes[0];
    /** @param {string} scheme */
    const changed = (scheme) => {
      this.scheme = scheme;
      this.drawCategories();
      this.selectionChanged();
    };
    this.schemes.hidden = schemes.length < 2;
    this.schemes.replaceChildren(
      choiceOf(
        words.scheme,
        Object.fromEntries(schemes.map((name) => [name, text.schemesLong[name]])),
        this.scheme,
        changed,
      ),
    );
    this.drawCategories();
  }

  drawCategories() {
    const rows = this.categories.filter((row) => row.scheme === this.scheme);
    const groups = [...new Set(rows.map((row) => row.group))];
    const all = [...new Map(rows.map((row) => [row.category, row.share_of_text]))].sort((a, b) => b[1] - a[1]);
    const shown = all.filter(([, share]) => share >= LEAST_SHARE);
    const at = new Map(rows.map((row) => [`${row.group} ${row.category}`, row]));
    /** @param {string} label */
    const index = (label) => range(this.app.run.numGroups).find((group) => groupLabel(group) === label);
    /** @param {string} label */
    const heading = (label) =>
      el(
        "th",
        { scope: "col" },
        buttonOf(
          groupChip(/** @type {number} */ (index(label))),
          () => this.toggle(/** @type {number} */ (index(label))),
          { class: "fx-stat-group", "data-group": index(label), "aria-label": `${words.of(label)}: ${words.select}` },
        ),
      );
    const head = el(
      "tr",
      {},
      el("th", { scope: "col" }, words.category),
      el("th", { scope: "col" }, words.inText),
      groups.map(heading),
    );
    /** @param {[string, number]} pair */
    const line = ([category, share]) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, statCategory(/** @type {string} */ (this.scheme), category)),
        el("td", {}, percent(share)),
        groups.map((label) => this.cell(/** @type {CategoryRow} */ (at.get(`${label} ${category}`)))),
      );
    this.scroll.replaceChildren(
      el(
        "table",
        {
          class: "fx-table fx-stat-table fx-stat-heat",
          "aria-label": words.tableTitle,
          "data-testid": "fx-stat-categories",
        },
        el("thead", {}, head),
        el("tbody", {}, shown.map(line)),
      ),
    );
    this.rest.textContent = all.length > shown.length ? words.rest(format.count(all.length - shown.length)) : "";
  }

  /**
   * Shaded by how far above its share of the text, on a scale that ends at four times.
   * @param {CategoryRow} row
   */
  cell(row) {
    const distinct = row.q_value !== null && row.q_value <= MOST_Q;
    const lift = row.lift ?? 0;
    const shade = distinct && lift > 1 ? Math.min(1, Math.log2(lift) / 2) : 0;
    const title = words.cell(
      percent(row.share),
      percent(row.low),
      percent(row.high),
      row.q_value === null ? text.none : text.q(row.q_value),
    );
    return el(
      "td",
      { title, class: distinct ? null : "fx-stat-pale", style: `--fx-heat:${Math.round(shade * 34)}%` },
      el("span", { class: "fx-stat-value" }, percent(row.share)),
      el("span", { class: "fx-interval" }, row.lift === null ? text.none : words.lift(format.decimal(row.lift, 1))),
    );
  }
}
