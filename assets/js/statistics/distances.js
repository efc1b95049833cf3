// @ts-check
// Pairs kept by distance with intervals and baselines, and the single pairs and links that lie far apart.
import { range } from "../core/arrays.js";
import { buttonOf, el, scrollRegion } from "../core/dom.js";
import { format } from "../core/format.js";
import { partOfQueryHead } from "../core/heads.js";
import { visibleToken } from "../core/labels.js";
import { drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { selectTokens } from "../core/selection.js";
import { choiceOf, tableOf } from "../core/widgets.js";
import { statLegend, statTip, statTraces } from "./chart.js";
import { statCell, statInterval, statNumber } from "./numbers.js";
import { statRows } from "./rows.js";
import { StatTable } from "./table.js";
import { statistics as text } from "../strings/statistics.js";
/** @import { Run } from "../core/run.js" */
/** @import { Child } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { StatisticsView } from "./view.js" */
/** @import { DistanceColumnsPayload, LinkColumnsPayload } from "../core/payloads.js" */
/** @import { DistantPairColumnsPayload, PairStatisticsPayload } from "../core/payloads.js" */
/** @import { NumberKey, RowOf } from "./rows.js" */
/** @import { Columns } from "./table.js" */

/** @typedef {RowOf<DistanceColumnsPayload>} Row */
/** @typedef {RowOf<LinkColumnsPayload>} LinkRow */
/** @typedef {keyof typeof words.kinds} Kind */

const words = text.distances;

const SHOWN = 20;

export class StatDistances {
  /** @type {keyof typeof words.scopes} */
  scope = "layer";
  /** @type {App} */
  app;
  /** @type {StatisticsView} */
  view;
  /** @type {Run | null} */
  shown;
  /** Number of the layer that is drawn. @type {number | null} */
  shownLayer = null;
  /** @type {PairStatisticsPayload} */
  answer;

  /**
   * @param {App} app
   * @param {StatisticsView} view
   */
  constructor(app, view) {
    Object.assign(this, { app, view });
    this.legend = el("ul", { class: "fx-causes" });
    this.plot = plotElement("fx-stat-chart", words.chart, "fx-stat-distances");
    this.table = new StatTable(app, words.table, this.columns());
    const scopes = choiceOf(text.show, words.scopes, this.scope, (scope) => {
      this.scope = scope;
      this.drawChart();
    });
    this.pairs = el("div", { "data-testid": "fx-stat-pairs" });
    this.links = el("div");
    this.body = el(
      "div",
      { hidden: true },
      el("h3", { class: "fx-subtitle" }, words.title),
      el("p", { class: "fx-help" }, words.help),
      el("div", { class: "fx-toolbar" }, scopes, this.legend),
      this.plot,
      el("h4", { class: "fx-stat-heading" }, words.table),
      this.table.node,
      el("div", { class: "fx-part" }, this.pairs),
      el("div", { class: "fx-part" }, this.links),
    );
    this.node = el("section", { class: "fx-stat-part" }, this.body);
  }

  /** @returns {Columns<Row>} */
  columns() {
    const { columns } = words;
    /**
     * @param {NumberKey<Row>} name
     * @param {NumberKey<Row>} [low]
     * @param {NumberKey<Row>} [high]
     * @returns {[(row: Row) => number | null, (row: Row) => Child[]]}
     */
    const share = (name, low, high) => [
      (row) => row[name],
      (row) => statCell(null, row[name], low && row[low], high && row[high]),
    ];
    return {
      distance: [
        columns.distance,
        (row) => row.first,
        (row) => words.bin(format.count(row.first), format.count(row.last)),
      ],
      pairs: [columns.pairs, (row) => row.pairs, (row) => format.count(row.pairs)],
      share: [columns.share, ...share("share", "low", "high")],
      shuffled: [columns.shuffled, ...share("shuffled"), text.baselines.shuffled[1]],
      random: [columns.random, ...share("random", "random_low", "random_high"), text.baselines.random[1]],
      window: [columns.window, ...share("window_only")],
    };
  }

  async update() {
    const { app, view } = this;
    if (this.shown !== app.run) this.body.hidden = true;
    const layer = app.run.layerIds[app.layerIndex];
    const answer = await view.answer("distances", "statistics_pairs", { layer });
    if (layer !== app.run.layerIds[app.layerIndex]) return;
    if (answer === null) {
      if (this.shownLayer !== layer) this.body.hidden = true; // the chart does not say whose it is
      return;
    }
    this.shown = app.run;
    this.shownLayer = layer;
    this.answer = answer;
    this.body.hidden = false;
    this.drawChart();
    this.drawPairs(layer);
    this.drawLinks(layer);
    this.selectionChanged();
  }

  drawChart() {
    const { app } = this;
    const rows = statRows(this.answer.distances).filter((row) => (row.layer === null) === (this.scope === "mean"));
    /** @param {NumberKey<Row>} name */
    const column = (name) => rows.map((row) => row[name]);
    const series = {
      value: { y: column("share"), low: column("low"), high: column("high") },
      shuffled: { y: column("shuffled") },
      random: { y: column("random"), low: column("random_low"), high: column("random_high") },
      window: { y: column("window_only") },
    };
    const names = { ...text.layers.key, window: words.windowOnly };
    this.legend.replaceChildren(...statLegend(names, series));
    const bins = rows.map((row) => words.bin(format.count(row.first), format.count(row.last)));
    const narrow = this.plot.clientWidth < 560;
    const layout = plotLayout(app.root, {
      showlegend: false,
      dragmode: false,
      margin: { l: 8, r: 16, t: 16, b: 8 },
      xaxis: plotAxis(app.root, words.axis, {
        tickvals: range(rows.length),
        ticktext: bins,
        tickangle: narrow ? -90 : bins.length > 10 ? -30 : 0,
        tickfont: { size: 11 },
        zeroline: false,
        fixedrange: true,
      }),
      yaxis: plotAxis(app.root, words.share, { tickformat: ".0%", range: [0, 1.03], fixedrange: true }),
    });
    /**
     * @param {string} label
     * @param {number | null} share
     * @param {number | null} [low]
     * @param {number | null} [high]
     * @returns {[string, string]}
     */
    const line = (label, share, low, high) => [
      label,
      [statNumber(null, share), statInterval(null, low, high)].filter(Boolean).join(" · "),
    ];
    /** @param {Row} row @param {string} bin */
    const tip = (row, bin) =>
      statTip(words.apart(bin), [
        line(names.value, row.share, row.low, row.high),
        line(names.shuffled, row.shuffled),
        line(names.random, row.random, row.random_low, row.random_high),
        line(names.window, row.window_only),
      ]);
    drawPlot(app, this.plot, statTraces(app.root, range(rows.length), series), layout, {
      hover: (point) => tip(rows[point.x], bins[point.x]),
    });
    this.table.show(rows);
  }

  /** @param {number} layer */
  drawPairs(layer) {
    const rows = statRows(this.answer.pairs).slice(0, SHOWN);
    /** @param {RowOf<DistantPairColumnsPayload>} row */
    const cells = (row) => [this.tokens(row), format.count(row.distance), format.decimal(row.affinity, 3), row.group];
    this.pairs.replaceChildren(
      el("h3", { class: "fx-subtitle" }, words.pairsTitle(layer)),
      el("p", { class: "fx-help" }, words.pairsHelp),
      rows.length === 0
        ? el("p", { class: "fx-muted" }, words.nonePairs)
        : scrolled(
            words.pairsTitle(layer),
            tableOf(words.pairColumns, rows.map(cells), { "aria-label": words.pairsTitle(layer) }),
          ),
    );
  }

  /** @param {number} layer */
  drawLinks(layer) {
    const title = [
      el("h3", { class: "fx-subtitle" }, words.linksTitle(layer)),
      el("p", { class: "fx-help" }, this.answer.links_measured ? words.linksHelp : words.linksMissing),
    ];
    if (!this.answer.links_measured) {
      this.links.replaceChildren(...title);
      return;
    }
    const all = statRows(this.answer.links);
    this.links.replaceChildren(
      ...title,
      el(
        "div",
        { class: "fx-link-columns" },
        /** @type {Kind[]} */ (Object.keys(words.kinds)).map((kind) =>
          this.kind(
            kind,
            all.filter((row) => row.kind === kind),
          ),
        ),
      ),
    );
  }

  /**
   * @param {Kind} kind
   * @param {LinkRow[]} pairs
   */
  kind(kind, pairs) {
    const rows = pairs.sort((a, b) => b.probability - a.probability).slice(0, SHOWN);
    /** @param {LinkRow} row */
    const cells = (row) => [
      this.tokens(row),
      format.count(row.distance),
      format.percent(row.probability, 1),
      format.decimal(row.affinity, 2),
      this.headWords(row.head),
    ];
    const table = () =>
      scrolled(words.kinds[kind], tableOf(words.linkColumns, rows.map(cells), { "aria-label": words.kinds[kind] }));
    const stored = format.count(this.answer.links_stored[kind]);
    return el(
      "div",
      {},
      el("h4", { class: "fx-stat-heading" }, words.kinds[kind]),
      ...(rows.length === 0
        ? [el("p", { class: "fx-muted" }, words.noneLinks)]
        : [table(), el("p", { class: "fx-help" }, words.more(format.count(rows.length), stored))]),
    );
  }

  /** @param {number} head a query head of the layer on screen */
  headWords(head) {
    const { parts } = this.app.run.layers[this.app.layerIndex];
    const { full } = partOfQueryHead(parts, head, /** @type {number} */ (this.answer.query_heads));
    return full ? words.fullHead(head) : String(head);
  }

  /**
   * Both tokens, and a press selects them.
   * @param {{ query: number, key: number, query_piece: string, key_piece: string }} row
   */
  tokens(row) {
    const [query, key] = [row.query_piece, row.key_piece].map((piece) => visibleToken(piece.trim() || piece));
    const [at, from] = [row.query, row.key].map(format.count);
    const select = () => this.app.toggleSelection(selectTokens([row.query, row.key], "tokens", words.label(at, from)));
    return buttonOf([el("code", {}, query), words.arrow, el("code", {}, key)], select, {
      class: "fx-stat-pair",
      "data-pair": `${row.query} ${row.key}`,
      "aria-label": words.choose(query, key, at, from),
    });
  }

  selectionChanged() {
    const { selection } = this.app;
    const chosen = selection && selection.size === 2 ? `${selection.positions[1]} ${selection.positions[0]}` : null;
    for (const button of this.node.querySelectorAll("[data-pair]"))
      button.setAttribute("aria-pressed", String(button.dataset.pair === chosen));
  }
}

/**
 * @param {string} label
 * @param {Node} table
 */
const scrolled = (label, table) => scrollRegion("fx-stat-scroll", label, table);
