// @ts-check
// Other settings of top-k and window on the run's text: a grid of results, and cost against loss with the baselines.
import { hedge, interval, keyOf, nats, perplexityAt, reach, timeRatio } from "./cells.js";
import { describe, sentences } from "./findings.js";
import { frontier, labelSides } from "./frontier.js";
import { ComparePart } from "./part.js";
import { el, newId } from "../core/dom.js";
import { labelledField } from "../core/fields.js";
import { format } from "../core/format.js";
import { hasBudget } from "../core/heads.js";
import { intervalEnds } from "../core/interval.js";
import { LEGEND_ABOVE, drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { cssColour, themeOf } from "../core/theme.js";
import { hintButton } from "../core/tooltip.js";
import { choiceOf, lazyDetails, tableOf } from "../core/widgets.js";
import { job as jobText, settings as text } from "../strings/compare.js";
/** @import { GridCellPayload, GridPayload, GridSettingPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { JobQuestion } from "../core/types.js" */

/** @typedef {GridCellPayload["kind"] | "full"} Kind */
/** @typedef {(cell: GridCellPayload) => number} Cost */

const SYMBOLS = { focus: "circle", window: "square", random: "x", full: "diamond" };

const COLOURS = { focus: "accent", window: "better", random: "worse", full: "text" };

const LETTER = 6; // pixels, about

const AXES = { x: 56, y: 110 }; // pixels of the chart that axes, legend and their titles take

const WIDE = 4; // a larger range of perplexities needs a logarithmic axis

export class CompareSettings extends ComparePart {
  /** @type {Run} */
  run;
  /** @type {GridCellPayload[]} */
  cells;
  /** @type {boolean} */
  drawPending;
  /** @type {string} */
  theme;
  /** @type {GridSettingPayload} */
  setting;
  /** @type {string} */
  cellsKey;
  /** @type {Map<string, GridCellPayload>} */
  byKey;
  /** Settings of this run's grid that was started last. @type {{ top_k: number[], window: number[] } | null} */
  requested = null;

  /** @param {App} app */
  constructor(app) {
    super(app, "settings", text);
    this.kind = "grid";
    /** @type {{ state: JobQuestion, start: JobQuestion }} */
    this.questions = { state: "compare_grid", start: "compare_grid_start" };
    this.cost = "time";
    this.topK = el("input", { id: newId("top-k"), type: "text", inputmode: "numeric", autocomplete: "off" });
    this.window = el("input", { id: newId("window"), type: "text", inputmode: "numeric", autocomplete: "off" });
    this.repeats = el("input", { id: newId("repeats"), type: "number", min: 1, max: 100, value: 3 });
    /** @param {string} label @param {HTMLElement} input @param {string} hint */
    const field = (label, input, hint) => labelledField(label, input, hintButton(app.tooltip, label, hint));
    this.form = el("form", { class: "fx-form", onsubmit: (event) => event.preventDefault() });
    this.form.append(
      field(text.topK, this.topK, text.topKHint),
      field(text.window, this.window, text.windowHint),
      field(text.repeats, this.repeats, text.repeatsHint),
      this.button(jobText.start, () => this.submit()),
    );
    this.estimate = el("p", { class: "fx-muted", "data-testid": "fx-grid-cost" });
    this.form.addEventListener("input", () => this.showCost());
    this.verdict = el("div", { class: "fx-verdict" });
    this.grid = el("div", {
      class: "fx-table-wrap fx-grid-wrap",
      tabindex: "0",
      role: "region",
      "aria-label": text.gridCaption,
    });
    this.chart = plotElement("fx-pareto", text.plotTitle, "fx-pareto");
    this.table = lazyDetails(text.table, () => this.allNumbers());
    this.results = el("div", { class: "fx-compare-results", hidden: true });
    this.results.append(
      this.verdict,
      el(
        "div",
        {},
        el("h4", { class: "fx-subtitle" }, text.gridTitle),
        el("p", { class: "fx-help" }, text.gridHint),
        this.grid,
      ),
      el(
        "div",
        {},
        el("h4", { class: "fx-subtitle" }, text.plotTitle),
        el("p", { class: "fx-help" }, text.plotHint),
        choiceOf(text.xLabel, text.x, this.cost, (cost) => this.setCost(cost)),
        this.chart,
      ),
      this.table,
    );
    this.nothing = el("p", { class: "fx-muted", "data-testid": "fx-grid-empty", hidden: true }, text.empty);
    const help = el("p", { class: "fx-help" }, text.help);
    this.budget = el("p", { class: "fx-help", "data-testid": "fx-grid-budget", hidden: true }, text.budget);
    this.node.append(help, this.budget, this.form, this.estimate, this.line.node, this.nothing, this.results);
  }

  update() {
    const theme = themeOf(this.app.root);
    if (this.run !== this.app.run) {
      this.run = this.app.run;
      this.cells = /** @type {any} */ (null);
      this.requested = null;
      this.budget.hidden = !hasBudget(this.run.config);
      this.results.hidden = this.nothing.hidden = true;
      this.watch();
    } else {
      if ((this.theme !== theme || this.drawPending) && this.cells !== null && this.cells.length > 0) this.draw();
      this.drawPending = false;
      this.showCost(); // the times of a long text come later
      if (this.busy) this.watch();
    }
    this.theme = theme;
  }

  /** @param {GridPayload} answer */
  received(answer) {
    const first = this.cells === null;
    const cellsKey = JSON.stringify(
      answer.cells.map((cell) => [cell.kind, cell.top_k, cell.window_size, cell.measured_at]),
    );
    this.setting = answer.setting;
    if (first) this.suggest(answer);
    this.nothing.hidden = answer.cells.length > 0 || (this.busy && this.isOwnJob(answer.job));
    if (cellsKey === this.cellsKey && !first) return;
    this.cellsKey = cellsKey;
    this.cells = answer.cells;
    this.byKey = new Map(answer.cells.map((cell) => [keyOf(cell.kind, cell.top_k, cell.window_size), cell]));
    this.results.hidden = answer.cells.length === 0;
    if (answer.cells.length > 0) this.showCells();
  }

  /** @param {GridPayload} given */
  suggest({ suggested }) {
    this.topK.value = suggested.top_k.join(", ");
    this.window.value = suggested.window.join(", ");
    this.showCost();
  }

  // Every setting takes as many passes of both kinds as there are repeats, of which the run has timed some.
  showCost() {
    const [topK, window] = [numbers(this.topK.value), numbers(this.window.value)];
    const [full, focus] = ["full", "focus"].map((mode) => this.run.timing(mode, "end_to_end"));
    const repeats = Number(this.repeats.value);
    if (topK === null || window === null || !full || !focus || !(repeats > 0)) return this.estimate.replaceChildren();
    const count = new Set(window).size * (2 * new Set(topK).size + 1);
    const seconds = (count * repeats * (full.median + focus.median)) / 1000;
    return this.estimate.replaceChildren(text.cost(count, format.duration(seconds)));
  }

  submit() {
    const [topK, window] = [numbers(this.topK.value), numbers(this.window.value)];
    if (topK === null) return this.line.fail(text.badNumbers(text.topK));
    if (window === null) return this.line.fail(text.badNumbers(text.window));
    this.requested = { top_k: topK, window };
    return this.start({ top_k: topK, window, repeats: Number(this.repeats.value) });
  }

  showCells() {
    this.verdict.replaceChildren(...sentences(this.cells, this.byKey).map((words) => el("p", {}, words)));
    this.grid.replaceChildren(this.gridTable());
    if (this.table.open) this.table.refresh();
    this.drawPending = !this.open; // drawn when the part is opened again
    if (this.open) this.draw();
  }

  gridTable() {
    const isMeasuring = this.busy && this.isOwnJob(this.job);
    const requested = (isMeasuring && this.requested) || { top_k: [], window: [] };
    /** @param {"top_k" | "window_size"} name @param {number[]} more */
    const unique = (name, more) =>
      [...new Set([...this.cells.map((cell) => cell[name]), ...more])]
        .filter((value) => name !== "top_k" || value > 0)
        .sort((a, b) => a - b);
    const ks = unique("top_k", requested.top_k);
    const rows = unique("window_size", requested.window).map((window) => [
      format.count(window),
      this.cellNode(this.byKey.get(keyOf("window", 0, window)), null),
      ...ks.map((k) =>
        this.cellNode(this.byKey.get(keyOf("focus", k, window)), this.byKey.get(keyOf("random", k, window))),
      ),
    ]);
    const table = tableOf([text.windowColumn, text.aloneColumn, ...ks.map(text.topKColumn)], rows, {
      "aria-label": text.gridCaption,
      "data-testid": "fx-grid",
    });
    table.classList.add("fx-grid");
    return table;
  }

  /**
   * @param {GridCellPayload | undefined} cell
   * @param {GridCellPayload | null | undefined} random
   */
  cellNode(cell, random) {
    if (!cell) return el("span", { class: "fx-muted" }, text.waiting);
    const isOwn =
      cell.kind === "focus" && cell.top_k === this.setting.top_k && cell.window_size === this.setting.window;
    return el(
      "div",
      { class: `fx-cell${isOwn ? " fx-own" : ""}`, "data-cell": keyOf(cell.kind, cell.top_k, cell.window_size) },
      el("strong", { class: "fx-number" }, nats(cell.delta_mean)),
      el("span", { class: "fx-interval" }, interval(cell)),
      el("span", {}, text.pairs(format.percent(cell.retained_pairs))),
      el("span", {}, text.time(format.ratio(timeRatio(cell))), hedge(cell)),
      el("span", {}, text.whole(format.ratio(cell.total_focus / cell.total_full))),
      random
        ? el(
            "span",
            { class: "fx-interval" },
            `${text.random}: ${nats(random.delta_mean)} ` +
            `(${interval(random)}), ` +
            `${format.percent(random.retained_pairs)}, ${format.ratio(timeRatio(random))}`,
          )
        : null,
      isOwn ? el("span", { class: "fx-own-mark" }, text.own) : null,
    );
  }

  /** @param {string} cost */
  setCost(cost) {
    this.cost = cost;
    this.draw();
  }

  draw() {
    const { root } = this.app;
    /** @type {Cost} */
    const cost = this.cost === "time" ? timeRatio : (cell) => cell.retained_pairs;
    const base = this.cells[0].perplexity_full; // of the same text and model in every cell
    const full = { ...marks(root, "full"), x: [1], y: [base], customdata: [null] };
    const points = [...this.cells.map((cell) => [cost(cell), perplexityAt(base, cell.delta_mean)]), [1, base]];
    const ends = this.cells.flatMap(reach).map((delta) => perplexityAt(base, delta));
    const wide = Math.max(base, ...ends) > WIDE * Math.min(base, ...ends);
    const places = this.labelPlaces(cost, base, wide);
    const series = ["window", "random", "focus"]
      .map((kind) => this.series(/** @type {Kind} */ (kind), cost, base, places))
      .filter((trace) => trace.x.length > 0);
    const line = frontier(/** @type {[number, number][]} */ (points));
    const joined = {
      type: "scatter",
      mode: "lines",
      name: text.frontier,
      x: line.map(([x]) => x),
      y: line.map(([, y]) => y),
      hoverinfo: "skip", // at the middle of a point Plotly would hand over the line's
      line: { dash: "dot", width: 2, color: cssColour(root, "muted") },
    };
    const layout = plotLayout(root, {
      legend: LEGEND_ABOVE,
      xaxis: plotAxis(root, text.xAxis[this.cost], {
        rangemode: "tozero",
        tickformat: this.cost === "pairs" ? ".0%" : "",
      }),
      yaxis: plotAxis(root, wide ? text.yAxisLog : text.yAxis, { zeroline: false, type: wide ? "log" : "linear" }),
      ...fullLine(root, base, wide),
    });
    drawPlot(this.app, this.chart, [joined, ...series, full], layout, {
      hover: (point) => describe(point.customdata, base),
    });
  }

  /**
   * On which side of its point every label has room, in pixels of the chart as it will be.
   * @param {Cost} cost
   * @param {number} base
   * @param {boolean} logarithmic
   */
  labelPlaces(cost, base, logarithmic) {
    /** @param {number} delta */
    const height = (delta) => (logarithmic ? delta : Math.exp(delta));
    const reached = [...this.cells.flatMap(reach), 0];
    const [low, high] = [Math.min(...reached), Math.max(...reached)].map(height);
    const [width, tall] = [Math.max(200, this.chart.clientWidth - AXES.x), this.chart.clientHeight - AXES.y];
    const right = Math.max(1, ...this.cells.map(cost)) * 1.06;
    /** @param {number} x */
    const across = (x) => (x / right) * width;
    /** @param {number} delta */
    const down = (delta) => ((high - height(delta)) / (high - low || 1)) * tall;
    const points = this.cells.map((cell) => ({
      x: across(cost(cell)),
      y: down(cell.delta_mean),
      top: down(reach(cell)[1]),
      bottom: down(reach(cell)[0]),
      words: text.shortSetting(cell),
    }));
    const name = {
      left: width - LETTER * text.fullLine(format.perplexity(base)).length,
      right: width,
      top: down(0) - 22,
      bottom: down(0) + 2,
    };
    const line = { left: 0, right: width, top: down(0) - 2, bottom: down(0) + 2 };
    const sides = labelSides(points, [name, line], LETTER);
    return new Map(this.cells.map((cell, i) => [cell, sides[i]]));
  }

  /**
   * @param {Kind} kind
   * @param {Cost} cost
   * @param {number} base
   * @param {Map<GridCellPayload, string | null>} places
   */
  series(kind, cost, base, places) {
    const cells = this.cells.filter((cell) => cell.kind === kind);
    const y = cells.map((cell) => perplexityAt(base, cell.delta_mean));
    const ends = cells.map((cell) => reach(cell).map((delta) => perplexityAt(base, delta)));
    const error = {
      type: "data",
      visible: cells.some((cell) => cell.delta_low !== null),
      symmetric: false,
      thickness: 1,
      width: 3,
      array: y.map((value, i) => ends[i][1] - value),
      arrayminus: y.map((value, i) => value - ends[i][0]),
    };
    return {
      ...marks(this.app.root, kind),
      mode: "markers+text",
      text: cells.map((cell) => (places.get(cell) === null ? "" : text.shortSetting(cell))),
      textposition: cells.map((cell) => places.get(cell) || "middle right"),
      textfont: { size: 11, color: cssColour(this.app.root, "muted") },
      cliponaxis: false,
      x: cells.map(cost),
      y,
      error_y: error,
      customdata: cells,
    };
  }

  allNumbers() {
    const rows = this.cells.map((cell) => [
      text.setting(cell),
      text.kinds[cell.kind],
      format.perplexity(cell.perplexity_full),
      format.perplexity(cell.perplexity_focus),
      format.signed(cell.delta_mean, 4),
      intervalEnds(cell.delta_low, cell.delta_high, (value) => format.signed(value, 4)),
      format.percent(cell.retained_pairs, 1),
      cell.dominance === null ? text.noGroups : format.percent(cell.dominance, 1),
      format.ms(cell.attention_full),
      format.ms(cell.attention_focus),
      text.range(format.msNumber(cell.attention_focus_low), format.msNumber(cell.attention_focus_high)),
      format.ms(cell.total_full),
      format.ms(cell.total_focus),
      String(cell.repeats),
    ]);
    return tableOf(text.columns, rows, { "aria-label": text.table });
  }
}

/**
 * @param {HTMLElement} root
 * @param {Kind} kind
 */
function marks(root, kind) {
  const colour = cssColour(root, COLOURS[kind]);
  return {
    type: "scatter",
    mode: "markers",
    name: text.kinds[kind],
    hoverinfo: "none",
    marker: { symbol: SYMBOLS[kind], size: 10, color: colour, line: { width: 1, color: colour } },
  };
}

/**
 * Full attention across the whole chart, with its number. On a logarithmic axis Plotly takes the logarithm of a shape's
 * place itself, and an annotation's as it is.
 * @param {HTMLElement} root
 * @param {number} base
 * @param {boolean} logarithmic
 */
function fullLine(root, base, logarithmic) {
  const colour = cssColour(root, "text");
  return {
    shapes: [
      {
        type: "line",
        xref: "paper",
        x0: 0,
        x1: 1,
        y0: base,
        y1: base,
        line: { color: colour, width: 1, dash: "dash" },
      },
    ],
    annotations: [
      {
        xref: "paper",
        x: 1,
        xanchor: "right",
        y: logarithmic ? Math.log10(base) : base,
        yanchor: "bottom",
        yshift: 5,
        showarrow: false,
        text: text.fullLine(format.perplexity(base)),
        font: { size: 12, color: colour },
      },
    ],
  };
}

/** @param {string} words */
function numbers(words) {
  const parts = words.split(/[\s,;]+/).filter(Boolean);
  return parts.length > 0 && parts.every((part) => /^\d+$/.test(part)) ? parts.map(Number) : null;
}
