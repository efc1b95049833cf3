// @ts-check
// The Sparsity view: which pairs one layer computes and why, and the same totals for every layer.
import { range, sum } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { HeadChoice } from "../core/head-choice.js";
import { layerFrame, layerTicks } from "../core/layer-axis.js";
import { LayerLoader } from "../core/loader.js";
import { Mask } from "../core/mask.js";
import { colourScale, drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox, lazyDetails, progressBox } from "../core/widgets.js";
import { ArrangedMask } from "./arranged.js";
import { AttentionPart } from "./attention.js";
import { BudgetTrial } from "./budget.js";
import { CAUSES, causeHints, causeSwatch, countRows, describeLayer, mainCause } from "./causes.js";
import { DistanceChart } from "./distance.js";
import { ZoomMask } from "./mask.js";
import { layerTable, rowSelection, rowTable } from "./tables.js";
import { budget as budgetText } from "../strings/budget.js";
import { heads as headsText } from "../strings/heads.js";
import { pairs as pairsText, sparsity as text } from "../strings/sparsity.js";
/** @import { DistanceMeanPayload } from "../core/payloads.js" */
/** @import { Run } from "../core/run.js" */
/** @import { Cause, LazyDetails, UiEvent } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { MaskTile } from "./tile.js" */

const DROPPED = "dropped";

const SHARE_TICKS = [0, 0.25, 0.5, 0.75, 1];

export class SparsityView {
  /** @type {HTMLDivElement} */
  status;
  /** @type {HTMLUListElement} */
  legend;
  /** @type {HTMLSpanElement} */
  causesHint;
  /** @type {HTMLHeadingElement} */
  maskTitle;
  /** @type {ZoomMask} */
  mask;
  /** @type {BudgetTrial} */
  budget;
  /** @type {ArrangedMask} */
  arranged;
  /** @type {HTMLDivElement} */
  layers;
  /** @type {LazyDetails} */
  layerTable;
  /** @type {LazyDetails} */
  rowTable;
  /** @type {{ run: Run, answer: DistanceMeanPayload } | null} */
  nulls;
  /** @type {DistanceChart} */
  distance;
  /** @type {AttentionPart} */
  attention;
  /** @type {HeadChoice} */
  heads;
  /** @type {HTMLParagraphElement} */
  fullNote;
  /** @type {HTMLParagraphElement} */
  trialNote;
  /** @type {Mask} */
  maskData;
  /** The hints that are shown. @type {string} */
  explained = "";
  /** Whether the picture has a colour for each cause, not for shares. */
  byCause = false;

  /**
   * @param {App} app
   * @param {HTMLElement} panel
   */
  constructor(app, panel) {
    this.app = app;
    /** @type {"kept" | "main" | Cause} */
    this.kind = "kept"; // the most frequent cause of a block hides every scattered pair
    this.build(panel);
    this.loader = new LayerLoader((run, layer, part) => app.server.load_mask(run, layer, part), {
      open: () => app.isOpen("sparsity"),
      waiting: () => this.wait(),
      ready: (answer) => this.showMask(new Mask(answer)),
      failed: (message) => this.fail(message),
    });
  }

  /** @param {HTMLElement} panel */
  build(panel) {
    const { app } = this;
    this.status = el("div", { class: "fx-status" });
    this.legend = el("ul", { class: "fx-causes" });
    this.causesHint = el("span", {});
    this.maskTitle = el("h3", { class: "fx-subtitle" });
    this.heads = new HeadChoice(app);
    this.fullNote = el("p", { class: "fx-help", "data-testid": "fx-full-layers" });
    this.trialNote = el("p", { class: "fx-help", hidden: true }, budgetText.layersHint);
    this.mask = new ZoomMask(
      app,
      (tile) => this.colouring(tile),
      (tile, row, column) => this.describeBlock(tile, row, column),
    );
    this.budget = new BudgetTrial(app, () => this.budgetChanged());
    this.arranged = new ArrangedMask(app, this.budget);
    this.layers = plotElement("fx-layers", text.layersTitle, "fx-layers-chart");
    this.layerTable = lazyDetails(text.layerTable, () => layerTable(app, (index) => this.openLayer(index)));
    this.rowTable = lazyDetails(text.rowTable, () => rowTable(app, this.maskData));
    this.nulls = null;
    this.distance = new DistanceChart(app, (answer) => this.takeNulls(answer));
    this.attention = new AttentionPart(app);
    panel.append(
      el("div", { class: "fx-toolbar" }, this.kindSelect(), this.causesHint, this.legend),
      this.status,
      el(
        "div",
        { class: "fx-charts" },
        el(
          "section",
          { class: "fx-chart" },
          el("div", {}, this.maskTitle, this.heads.node),
          el("p", { class: "fx-help" }, text.maskHint),
          this.mask.node,
        ),
        el(
          "section",
          { class: "fx-chart" },
          el("h3", { class: "fx-subtitle" }, text.layersTitle),
          el("p", { class: "fx-help" }, text.layersHint),
          this.layers,
          el("p", { class: "fx-help" }, pairsText.nulls.layersHint),
          this.trialNote,
          this.fullNote,
        ),
      ),
      this.layerTable,
      this.rowTable,
      this.budget.node,
      this.arranged.node,
      this.distance.node,
      this.attention.node,
    );
  }

  kindSelect() {
    const options = Object.entries(text.kinds).map(([value, label]) =>
      el("option", { value, selected: value === this.kind }, label),
    );
    /** @param {UiEvent<Event>} event */
    const changed = (event) => {
      this.kind = event.target.value;
      this.mask.redraw();
    };
    return el("label", { class: "fx-select" }, text.show, el("select", { onchange: changed }, options));
  }

  title() {
    const { run, layerIndex, part } = this.app;
    const { layer, parts } = run.layers[layerIndex];
    return text.maskTitle(layer, parts.length > 1 ? headsText.heads(parts[part].heads, parts[part].query_heads) : "");
  }

  update() {
    const { run, layerIndex, part } = this.app;
    this.layerTable.refresh();
    if (this.nulls && this.nulls.run !== run) this.nulls = null;
    this.budget.update();
    this.drawLayers();
    this.maskTitle.textContent = this.title();
    this.updateLegend();
    this.heads.update();
    this.fullNote.hidden = run.fullLayers.length === 0;
    this.fullNote.textContent = headsText.fullLayers(run.fullLayers);
    this.loader.request(run.info.run_id, run.layerIds[layerIndex], part);
    this.arranged.update();
    this.distance.update();
    this.attention.update();
  }

  selectionChanged() {
    this.mask.selectionChanged();
    this.attention.links.selectionChanged();
    for (const button of this.rowTable.querySelectorAll("[data-row]"))
      button.setAttribute("aria-pressed", String(this.rowSelected(Number(button.dataset.row))));
  }

  budgetChanged() {
    this.arranged.update();
    this.drawLayers();
  }

  /** @param {number} row */
  rowSelected(row) {
    return rowSelection(this.maskData, row, this.app.run.numTokens).equals(this.app.selection);
  }

  /**
   * The table is built anew for its mark; the keyboard stays where it was.
   * @param {number} index
   */
  openLayer(index) {
    this.app.setLayer(index);
    const button = this.layerTable.querySelector(`[data-layer="${index}"]`);
    if (button) button.focus({ preventScroll: true });
  }

  /**
   * Nulls of every layer, known once the pairs of all layers are counted by distance.
   * @param {DistanceMeanPayload} answer
   */
  takeNulls(answer) {
    if (this.nulls && this.nulls.answer === answer) return;
    this.nulls = { run: this.app.run, answer };
    this.drawLayers();
  }

  wait() {
    this.mask.wait();
    this.status.replaceChildren(progressBox(text.waiting));
  }

  /** @param {string} message */
  fail(message) {
    this.status.replaceChildren(alertBox(message, () => this.update()));
  }

  /** @param {Mask} mask */
  showMask(mask) {
    this.maskData = mask;
    this.status.replaceChildren();
    this.mask.plot.classList.remove("fx-stale");
    this.rowTable.refresh();
    this.mask.plot.setAttribute("aria-label", this.title());
    this.mask.setWhole(mask);
  }

  /**
   * Values and colours of a tile; a single pair has one cause and nothing to share.
   * @param {MaskTile} tile
   */
  colouring(tile) {
    this.byCause = this.kind === "main" || (this.kind === "kept" && tile.blockSize === 1);
    this.updateLegend();
    return this.byCause ? this.causeScale(tile) : this.shareScale(tile);
  }

  /** @param {MaskTile} tile */
  causeScale(tile) {
    const { causes } = tile;
    const steps = causes.flatMap((cause, i) => [
      [i / causes.length, cssColour(this.app.root, `cause-${cause}`)],
      [(i + 1) / causes.length, cssColour(this.app.root, `cause-${cause}`)],
    ]);
    return { z: tile.matrix(mainCause), zmin: -0.5, zmax: causes.length - 0.5, colorscale: steps };
  }

  /** @param {MaskTile} tile */
  shareScale(tile) {
    const { root } = this.app;
    const cause = tile.causes.indexOf(/** @type {Cause} */ (this.kind));
    const dropped = tile.causes.indexOf(DROPPED);
    /** @type {(counts: number[]) => number} */
    const value =
      this.kind === "kept" ? (counts) => 1 - counts[dropped] / sum(counts) : (counts) => counts[cause] / sum(counts);
    return {
      z: tile.matrix(value),
      zmin: 0,
      zmax: 1,
      colorscale: colourScale(root),
    };
  }

  // Kept while their words stay: a hint in focus must not be replaced.
  explainCauses() {
    const { run, tooltip, layerIndex, part } = this.app;
    const hints = causeHints(run, layerIndex, part);
    if (this.explained === JSON.stringify(hints)) return;
    this.explained = JSON.stringify(hints);
    const lines = CAUSES.map((cause) =>
      el(
        "span",
        { class: "fx-cause-line" },
        causeSwatch(cause),
        el("span", {}, el("strong", {}, text.causes[cause]), ` – ${hints[cause]}`),
      ),
    );
    this.causesHint.replaceChildren(hintButton(tooltip, pairsText.causesSubject, lines));
  }

  updateLegend() {
    if (!this.maskData) return;
    this.explainCauses();
    const { causes } = this.maskData;
    const { run, layerIndex, part } = this.app;
    const { pairs } = run.layers[layerIndex].parts[part];
    const total = sum(causes.map((cause) => pairs[cause]));
    const hints = causeHints(run, layerIndex, part);
    const ramp = el("span", { class: "fx-ramp" });
    const scale = this.byCause ? [] : [el("li", {}, text.scaleLow, ramp, text.scaleHigh)];
    this.legend.replaceChildren(
      ...scale,
      ...causes.map((cause) =>
        el(
          "li",
          { title: hints[cause] },
          causeSwatch(cause),
          text.causes[cause],
          el("span", { class: "fx-muted" }, format.percent(pairs[cause] / total, 1)),
        ),
      ),
    );
  }

  /**
   * @param {MaskTile} tile
   * @param {number} row
   * @param {number} column
   */
  describeBlock(tile, row, column) {
    const ends = [...tile.rowSpan(row), ...tile.keySpan(column)].map(format.count);
    const title = text.blockTitle(.../** @type {[string, string, string, string]} */ (ends));
    return countRows(title, tile.causes, tile.blockCounts(row, column));
  }

  drawLayers() {
    const { app } = this;
    const { run, root } = app;
    const keptCauses = CAUSES.filter((cause) => cause !== DROPPED);
    const bars = keptCauses.map((cause) => ({
      type: "bar",
      orientation: "h",
      name: text.causes[cause],
      y: range(run.numLayers),
      x: run.layers.map(({ pairs }) => pairs[cause] / sum(Object.values(pairs))),
      hoverinfo: "none",
      marker: { color: cssColour(root, `cause-${cause}`) },
    }));
    drawPlot(app, this.layers, [...bars, ...this.nullTraces(), ...this.trialTraces()], this.layersLayout(), {
      hover: (point) => describeLayer(run, point.pointNumber),
      click: (point) => app.setLayer(point.pointNumber),
    });
  }

  nullTraces() {
    if (!this.nulls) return [];
    const { layer_shuffled: shuffled, layer_window_only: alone } = this.nulls.answer;
    const colour = cssColour(this.app.root, "text");
    const ground = cssColour(this.app.root, "bg");
    return [
      {
        type: "scatter",
        mode: "lines",
        x: alone.flatMap((share) => [share, share]),
        y: alone.flatMap((_, index) => [index - 0.5, index + 0.5]),
        hoverinfo: "skip",
        line: { dash: "dash", width: 2, color: colour },
      },
      {
        type: "scatter",
        mode: "markers",
        x: shuffled,
        y: range(shuffled.length),
        hoverinfo: "skip",
        marker: { symbol: "diamond", size: 8, color: colour, line: { width: 1, color: ground } },
      },
    ];
  }

  /** What the settings that are tried would keep in every layer. */
  trialTraces() {
    const { trial } = this.budget;
    const shares = trial.isOwn ? null : trial.keptOfLayers();
    this.trialNote.hidden = shares === null;
    if (shares === null) return [];
    const line = { width: 3, color: cssColour(this.app.root, "accent") };
    return [
      {
        type: "scatter",
        mode: "markers",
        x: shares,
        y: range(shares.length),
        hoverinfo: "skip",
        marker: { symbol: "line-ns-open", size: 12, color: line.color, line },
      },
    ];
  }

  layersLayout() {
    const { run, root, layerIndex } = this.app;
    return plotLayout(root, {
      margin: { l: 8, r: 24, t: 32, b: 8 },
      barmode: "stack",
      bargap: 0.25,
      dragmode: false,
      showlegend: false,
      shapes: [layerFrame(root, layerIndex)],
      xaxis: plotAxis(root, text.keptAxis, {
        range: [0, 1],
        tickvals: SHARE_TICKS,
        tickformat: ".0%",
        fixedrange: true,
      }),
      yaxis: plotAxis(root, text.layerAxis, {
        range: [run.numLayers - 0.4, -0.6],
        ...layerTicks(run),
        showgrid: false,
        zeroline: false,
        fixedrange: true,
      }),
    });
  }
}
