// @ts-check
// Focus against full attention: verdict, table, and the loss difference of every token.
import { drawLossChart, meanLine } from "./loss-chart.js";
import { comparisonTable, verdict } from "./verdict.js";
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { plotElement } from "../core/plot.js";
import { selectTokens } from "../core/selection.js";
import { cssColour, themeOf } from "../core/theme.js";
import { contextLine, tokenSummary } from "../core/token-text.js";
import { hintButton } from "../core/tooltip.js";
import { common } from "../strings/common.js";
import { selection as selectionText, overview as text } from "../strings/compare.js";
/** @import { TimingPayload } from "../core/payloads.js" */
/** @import { PlotPoint } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { Selection } from "../core/selection.js" */

const LISTED = 10;

export class Overview {
  /** @type {string} */
  theme;
  /** @type {TimingPayload[]} */
  timings;
  /** @type {Run} */
  run;
  /** @type {(number | null)[]} */
  differences;
  /** @type {Selection | null} */
  marked;

  /**
   * @param {App} app
   * @param {(token: number) => unknown} explain
   */
  constructor(app, explain) {
    this.app = app;
    this.explain = explain;
    this.verdict = el("div", { class: "fx-verdict" });
    this.table = el("div", { class: "fx-table-wrap" });
    this.chart = plotElement("fx-loss", text.lossTitle, "fx-loss-chart");
    this.lists = el("div", { class: "fx-lists" });
    this.chosen = el("p", { class: "fx-chosen", role: "status", "data-testid": "fx-selected-loss" });
    this.node = el("div", {});
    this.node.append(
      el("div", { class: "fx-compare", "data-testid": "fx-compare" }, this.verdict, this.table),
      el(
        "section",
        { class: "fx-chart" },
        el(
          "h3",
          { class: "fx-subtitle" },
          text.lossTitle,
          hintButton(app.tooltip, common.nats.subject, common.nats.hint),
        ),
        el("p", { class: "fx-help" }, text.lossHint),
        this.chosen,
        this.chart,
      ),
      this.lists,
    );
  }

  update() {
    const { run, root } = this.app;
    const theme = themeOf(root);
    if (this.run !== run || this.timings !== run.timings) this.showTimes(run); // those of a long text come later
    // Nothing here depends on the layer.
    if (this.run === run && this.theme === theme) return;
    this.theme = theme;
    if (this.run !== run) {
      this.run = run;
      this.differences = range(run.numTokens).map((pos) => run.lossDifference(pos));
      this.showLists();
    }
    this.marked = this.app.selection;
    this.showChosen();
    this.drawChart();
  }

  /** @param {Run} run */
  showTimes(run) {
    this.timings = run.timings;
    this.verdict.replaceChildren(...verdict(run).map((sentence) => el("p", {}, sentence)));
    this.table.replaceChildren(comparisonTable(run, this.app.tooltip));
  }

  selectionChanged() {
    this.showChosen();
    this.drawChart();
  }

  // What the chosen tokens lose on average, compared with all others.
  showChosen() {
    const { selection } = this.app;
    const words = selectionText;
    for (const button of this.lists.querySelectorAll("[data-pos]"))
      button.toggleAttribute("data-selected", selection !== null && selection.has(Number(button.dataset.pos)));
    if (selection === null) {
      this.chosen.textContent = "";
      return;
    }
    const sums = { inside: [0, 0], outside: [0, 0] };
    this.differences.forEach((value, pos) => {
      if (value === null) return;
      const sum = selection.has(pos) ? sums.inside : sums.outside;
      sum[0] += value;
      sum[1] += 1;
    });
    /** @param {[number, number]} pair */
    const mean = ([total, count]) => (count === 0 ? null : format.signed(total / count, 3));
    this.chosen.textContent =
      sums.inside[1] === 0
        ? words.none
        : words.mean(
            mean(/** @type {[number, number]} */ (sums.inside)),
            format.count(sums.inside[1]),
            mean(/** @type {[number, number]} */ (sums.outside)),
          );
  }

  showLists() {
    const scored = range(this.run.numTokens).filter((pos) => this.differences[pos] !== null);
    const ranked = scored.sort(
      (a, b) => /** @type {number} */ (this.differences[b]) - /** @type {number} */ (this.differences[a]),
    );
    const hurt = ranked.filter((pos) => /** @type {number} */ (this.differences[pos]) > 0).slice(0, LISTED);
    const helped = ranked
      .filter((pos) => /** @type {number} */ (this.differences[pos]) < 0)
      .slice(-LISTED)
      .reverse();
    this.lists.replaceChildren(
      this.tokenList("hurt", hurt, text.noneHurt),
      this.tokenList("helped", helped, text.noneHelped),
    );
  }

  /**
   * @param {"hurt" | "helped"} name
   * @param {number[]} positions
   * @param {string} none
   */
  tokenList(name, positions, none) {
    const items = positions.map((pos) => el("li", {}, this.tokenItem(pos), name === "hurt" ? this.why(pos) : null));
    const words = selectionText;
    const choose = () => this.app.toggleSelection(selectTokens(positions, "row", words.label[name]));
    const button = buttonOf(words.choose, choose, {
      "aria-label": `${words.choose}: ${words.label[name]}`,
      "data-testid": `fx-select-${name}`,
    });
    const head = el(
      "div",
      { class: "fx-list-head" },
      el("h3", { class: "fx-subtitle" }, text[name]),
      positions.length ? button : null,
    );
    return el(
      "section",
      {},
      head,
      positions.length ? el("ol", { class: "fx-ranked" }, items) : el("p", { class: "fx-muted" }, none),
    );
  }

  /** @param {number} pos */
  why(pos) {
    return buttonOf(text.why, () => this.explain(pos), {
      "aria-label": text.whyToken(format.count(pos)),
      "data-testid": "fx-why",
    });
  }

  /** @param {number} pos */
  tokenItem(pos) {
    const { run, differences, app } = this;
    const losses = text.losses(
      format.decimal(/** @type {number} */ (run.losses.full[pos]), 2),
      format.decimal(/** @type {number} */ (run.losses.focus[pos]), 2),
    );
    return buttonOf(
      [
        el("span", { class: "fx-number fx-ranked-value" }, format.signed(/** @type {number} */ (differences[pos]), 2)),
        el(
          "span",
          { class: "fx-ranked-text" },
          contextLine(run, pos),
          el("span", { class: "fx-muted" }, `${text.at(format.count(pos))} · ${losses}`),
        ),
      ],
      () => app.goToToken(pos),
      { class: "fx-ranked-token", "data-pos": pos, title: text.goTo(format.count(pos)) },
    );
  }

  drawChart() {
    const { app, differences } = this;
    const size = Math.max(15, 2 * Math.round(differences.length / 60) + 1);
    const events = {
      /** @param {PlotPoint} point */
      hover: (point) => this.describe(point.x),
      /** @param {PlotPoint} point */
      click: (point) => app.goToToken(point.x),
    };
    const mean = meanLine(differences, size, cssColour(app.root, "text"));
    drawLossChart(app, this.chart, differences, text, events, [mean]);
  }

  /** @param {number} pos */
  describe(pos) {
    const { run, differences } = this;
    if (differences[pos] === null) return null;
    const losses = text.losses(
      format.decimal(/** @type {number} */ (run.losses.full[pos]), 2),
      format.decimal(/** @type {number} */ (run.losses.focus[pos]), 2),
    );
    return tokenSummary(run, pos, el("div", {}, `${losses} (${format.signed(differences[pos], 2)})`));
  }
}
