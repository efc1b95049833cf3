// @ts-check
// The measured budgets of a file: chart, table with a button to use each, and the results on held-out text.
import {
  domainsOf,
  domainsToName,
  isTuned,
  nearAndFar,
  percentChange,
  shareDigits,
  worstDomain,
} from "./budget-points.js";
import { buttonOf, el, scrollRegion } from "../core/dom.js";
import { format, sentence } from "../core/format.js";
import { LEGEND_ABOVE, drawPlot, plotAxis, plotLayout } from "../core/plot.js";
import { callServer } from "../core/server.js";
import { countChanges, countWords } from "../core/setting-words.js";
import { cssColour } from "../core/theme.js";
import { tooltipHead, tooltipRow } from "../core/tooltip.js";
import { alertBox, tableOf } from "../core/widgets.js";
import { centroids as text } from "../strings/centroids.js";
/** @import { AllChanges, Changes } from "../core/setting-words.js" */
/** @import { BudgetHeldOutPayload, BudgetPointPayload, BudgetRecordPayload } from "../core/payloads.js" */
/** @import { PlotPoint } from "../core/types.js" */
/** @import { App } from "./app.js" */

const MOST_LINES = 8; // domains drawn as lines of their own, and named one by one; more would hide the points

export class Budgets {
  /** @type {BudgetRecordPayload | null} */
  record;
  /** @type {string} */
  file;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.chart = el("div", {
      class: "fx-file-chart",
      role: "group",
      "aria-label": text.budgetsChart,
      "data-testid": "fx-file-budgets",
    });
    this.narrow = window.matchMedia("(width <= 640px)");
    this.narrow.addEventListener("change", () => this.draw());
    this.target = el("p", { class: "fx-help" });
    this.above = el("p", { class: "fx-help", "data-testid": "fx-file-budgets-above" });
    this.before = el("p", { class: "fx-budget-note", hidden: true });
    this.problem = el("div", { "aria-live": "polite" });
    this.rows = scrollRegion("fx-budget-rows", text.budgetsTable);
    this.heldOut = el("div", { "data-testid": "fx-file-held-out" });
    this.node = el(
      "section",
      { class: "fx-file-whole", hidden: true },
      el("h3", { class: "fx-subtitle" }, text.budgetsTitle),
      el("p", { class: "fx-help" }, text.budgetsHelp),
      this.target,
      this.before,
      this.chart,
      this.above,
      this.problem,
      this.rows,
      el("h4", { class: "fx-file-part" }, text.heldOutTitle),
      this.heldOut,
    );
  }

  /**
   * @param {string} file
   * @param {BudgetRecordPayload | null} record
   */
  update(file, record) {
    Object.assign(this, { file, record });
    this.node.hidden = record === null;
    this.problem.replaceChildren();
    if (record === null) return;
    const words = record.met ? text.budgetsTargetMet : text.budgetsTargetMissed;
    const since = [
      record.before_factors ? text.beforeFactors : null,
      record.before_balance ? text.beforeBalance : null,
      record.before_growth ? text.beforeGrowth : null,
      record.before_text_sinks ? text.beforeTextSinks : null,
    ].filter(Boolean);
    this.before.hidden = since.length === 0;
    this.before.textContent = since.join(" ");
    const counted = record.pairs_counted_at;
    const where = counted === null ? "" : ` ${text.budgetsCountedAt(format.count(counted))}`;
    this.target.textContent = words(this.targetWords(record)) + where;
    this.rows.replaceChildren(this.table(record.points));
    this.heldOut.replaceChildren(...this.heldOutRows(record));
    this.draw();
  }

  /** @param {BudgetRecordPayload} record */
  targetWords({ target: [kind, value] }) {
    return kind === "loss" ? text.budgetsTarget.loss(percentChange(value)) : text.budgetsTarget.pairs(percentOf(value));
  }

  /** @param {BudgetPointPayload[]} points */
  table(points) {
    const digits = shareDigits(points);
    const rows = points.map((point, i) => {
      const changes = countChanges(point.budget);
      const [domain, change] = worstDomain(point);
      const share = format.percent(point.retained_pairs, digits);
      return [
        share,
        text.worst(percentChange(change), domain),
        changed(changes, ({ full }) => full),
        changed(changes, ({ alone }) => alone),
        changed(changes, ({ topK, other }) => topK + other),
        point.own ? el("span", { class: "fx-budget-own" }, text.ownBudget) : this.useButton(i, share),
      ];
    });
    return stacked(text.budgetColumns, rows);
  }

  /**
   * @param {number} point
   * @param {string} share of pairs that it keeps
   */
  useButton(point, share) {
    if (this.app.fixed) return "";
    return buttonOf(text.useBudget, () => this.use(point), {
      class: "fx-button fx-budget-use",
      "aria-label": text.useBudgetLabel(share),
      "data-testid": "fx-budget-use",
    });
  }

  /** @param {BudgetRecordPayload} record */
  heldOutRows(record) {
    const most = format.count(Math.max(...Object.values(record.calibration)));
    const measured = record.points.find((point) => point.held_out);
    const other = measured
      ? text.heldOutOther(format.percent(measured.retained_pairs, shareDigits(record.points)))
      : text.heldOutUnknown;
    /** @param {BudgetHeldOutPayload["change"]} change */
    const interval = ({ low, high }) =>
      low === null || high === null ? text.none : text.heldOutInterval(percentChange(low), percentChange(high));
    const rows = record.held_out.map((row) => [
      row.domain,
      percentChange(row.change.value),
      interval(row.change),
      format.percent(row.retained_pairs),
      format.count(row.sequences),
    ]);
    return [
      el("p", { class: "fx-help" }, text.heldOutHelp(most)),
      record.held_out_own ? "" : el("p", { class: "fx-budget-note" }, other),
      scrollRegion("fx-budget-rows", text.heldOutTitle, stacked(text.heldOutColumns, rows)),
    ];
  }

  /** @param {number} point */
  async use(point) {
    if (this.busy) return;
    const { file } = this;
    this.busy = true;
    this.problem.replaceChildren(el("p", { class: "fx-muted", role: "status" }, text.usingBudget));
    const answer = await callServer(() => this.app.server.use({ file, point }));
    this.busy = false;
    this.problem.replaceChildren();
    if (answer.error === undefined) this.app.choose(answer);
    else if (file === this.file) this.problem.replaceChildren(alertBox(sentence(answer.error)));
  }

  draw() {
    if (!this.record) return;
    const { root } = this.app;
    const [kind, value] = this.record.target;
    const { near: points, far } = nearAndFar(this.record.points, kind === "loss" ? value : 0);
    this.above.textContent = far.length === 0 ? "" : text.budgetsAbove(far.map((point) => this.pointWords(point)));
    const names = domainsOf(points);
    const x = points.map((point) => point.retained_pairs);
    const few = names.length > 1 && names.length <= MOST_LINES;
    const lines = few ? names.map((name) => this.domainLine(name, points)) : [];
    const worst = {
      ...this.marks(points.filter(isTuned), text.worstTraceBudget, "accent", "circle", 8),
      mode: "lines+markers",
      line: { color: cssColour(root, "accent"), width: 2 },
    };
    const base = points.filter((point) => !isTuned(point));
    const own = points.filter((point) => point.own);
    const reached = kind === "pairs" ? [...x, value] : x;
    const [least, most] = [Math.min(...reached), Math.max(...reached)];
    const margin = Math.max(0.01, 0.06 * (most - least));
    const layout = plotLayout(root, {
      legend: LEGEND_ABOVE,
      xaxis: plotAxis(root, text.budgetsX, {
        tickformat: axisFormat(x),
        zeroline: false,
        range: [least - margin, most + margin], // else the target's words take half of a narrow chart
      }),
      yaxis: plotAxis(root, text.budgetsY, { tickformat: axisFormat(points.map((point) => worstDomain(point)[1])) }),
      ...this.targetLine(),
    });
    const reach = { x: kind === "loss" ? [x[0]] : [], y: [value] };
    const data = [
      // unseen, so that the vertical axis reaches the target
      { ...reach, type: "scatter", mode: "markers", opacity: 0, showlegend: false, hoverinfo: "skip" },
      ...lines,
      worst,
      this.marks(base, text.noBudgetTrace, "muted", "square", 11),
      this.marks(own, text.ownTrace, "worse", "diamond", 13),
    ];
    drawPlot(
      this.app,
      this.chart,
      data.filter((trace) => trace.x.length > 0),
      layout,
      { hover: (point) => this.hover(point) },
    );
  }

  /** @param {BudgetPointPayload} point */
  pointWords(point) {
    const [, change] = worstDomain(point);
    return text.budgetAbove(format.percent(point.retained_pairs, 1), percentChange(change));
  }

  /**
   * @param {string} name
   * @param {BudgetPointPayload[]} drawn
   */
  domainLine(name, drawn) {
    const points = drawn.filter(isTuned);
    return {
      type: "scatter",
      mode: "lines",
      name,
      x: points.map((point) => point.retained_pairs),
      y: points.map((point) => point.excess[name]),
      customdata: points,
      hoverinfo: "none",
      showlegend: false,
      line: { color: cssColour(this.app.root, "border-strong"), width: 1 },
      opacity: 0.6,
    };
  }

  /**
   * @param {BudgetPointPayload[]} points
   * @param {string} name
   * @param {string} colour
   * @param {string} symbol
   * @param {number} size
   */
  marks(points, name, colour, symbol, size) {
    return {
      type: "scatter",
      mode: "markers",
      name,
      x: points.map((point) => point.retained_pairs),
      y: points.map((point) => worstDomain(point)[1]),
      customdata: points,
      hoverinfo: "none",
      cliponaxis: false,
      marker: { symbol, size, color: cssColour(this.app.root, colour) },
    };
  }

  targetLine() {
    const record = /** @type {BudgetRecordPayload} */ (this.record);
    const [kind, value] = record.target;
    const colour = cssColour(this.app.root, "muted");
    const line = { color: colour, width: 1, dash: "dash" };
    const place =
      kind === "loss"
        ? { xref: "paper", x0: 0, x1: 1, y0: value, y1: value }
        : { yref: "paper", y0: 0, y1: 1, x0: value, x1: value };
    const where =
      kind === "loss"
        ? { xref: "paper", x: 1, xanchor: "right", y: value, yanchor: "bottom" }
        : { yref: "paper", y: 1, yanchor: "top", x: value, xanchor: "left", xshift: 4 };
    // A narrow chart would cut the words beside an upright line; they stand above it in the page's text.
    const named = kind === "loss" || !this.narrow.matches;
    const words = { ...where, showarrow: false, text: this.targetWords(record), font: { size: 12, color: colour } };
    return { shapes: [{ type: "line", ...place, line }], annotations: named ? [words] : [] };
  }

  /** @param {PlotPoint} plotted */
  hover({ customdata: point }) {
    const changes = countChanges(point.budget);
    return [
      tooltipHead(isTuned(point) ? format.percent(point.retained_pairs, 1) : text.noBudget),
      tooltipRow(text.budgetsX, format.percent(point.retained_pairs, 1)),
      tooltipRow(text.budgetColumns[2], changed(changes, ({ full }) => full)),
      tooltipRow(text.budgetColumns[3], changed(changes, ({ alone }) => alone)),
      tooltipRow(text.budgetColumns[4], changed(changes, ({ topK, other }) => topK + other)),
      ...domainsToName(point, MOST_LINES).map(([name, value]) => tooltipRow(name, percentChange(value))),
    ];
  }
}

/**
 * A table whose rows become blocks on a narrow screen, so that no button is out of sight.
 * @param {string[]} columns
 * @param {(string | HTMLElement)[][]} rows
 */
function stacked(columns, rows) {
  const table = tableOf(columns, rows);
  table.classList.add("fx-stacked");
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, i) => i > 0 && columns[i] && (cell.dataset.label = columns[i]));
  }
  return table;
}

/** @param {number} share */
const percentOf = (share) => format.percent(share, Number.isInteger(Math.round(share * 1e6) / 1e4) ? 0 : 1);

/**
 * Heads, query heads and whole layers with a kind of change, in words; a number alone where they are heads.
 * @param {AllChanges} changes
 * @param {(counts: Changes) => number} kind
 */
function changed({ heads, queryHeads, layers }, kind) {
  const onlyHeads = kind(queryHeads) + kind(layers) === 0;
  /** @type {[number, (count: string | number) => string][]} */
  const all = [
    [kind(heads), onlyHeads ? String : text.keyHeads],
    [kind(queryHeads), text.queryHeads],
    [kind(layers), text.wholeLayers],
  ];
  const words = countWords(all);
  return words.length === 0 ? format.count(0) : words.reduce((before, next) => text.and(before, next));
}

/**
 * Ticks with a digit more where the values lie near each other.
 * @param {number[]} values
 */
const axisFormat = (values) => (Math.max(...values) - Math.min(...values) < 0.05 ? ".1%" : ".0%");
