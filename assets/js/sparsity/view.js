// @ts-check
// The Sparsity view: which pairs one layer computes and why, and the same totals for every layer.
import { sum } from "../core/arrays.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { HeadChoice } from "../core/head-choice.js";
import { LayerLoader } from "../core/loader.js";
import { Mask } from "../core/mask.js";
import { colourScale } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox, lazyDetails, progressBox } from "../core/widgets.js";
import { ArrangedMask } from "./arranged.js";
import { AttentionPart } from "./attention.js";
import { BudgetTrial } from "./budget.js";
import { CAUSES, causeHints, causeSwatch, countRows, mainCause } from "./causes.js";
import { DistanceChart } from "./distance.js";
import { LayerShares } from "./layer-shares.js";
import { ZoomMask } from "./mask.js";
import { layerTable, rowSelection, rowTable } from "./tables.js";
import { heads as headsText } from "../strings/heads.js";
import { pairs as pairsText, sparsity as text } from "../strings/sparsity.js";
/** @import { Cause, LazyDetails, UiEvent } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { MaskTile } from "./tile.js" */

const DROPPED = "dropped";

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
  /** @type {LayerShares} */
  layers;
  /** @type {LazyDetails} */
  layerTable;
  /** @type {LazyDetails} */
  rowTable;
  /** @type {DistanceChart} */
  distance;
  /** @type {AttentionPart} */
  attention;
  /** @type {HeadChoice} */
  heads;
  /** @type {HTMLParagraphElement} */
  fullNote;
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
    this.mask = new ZoomMask(
      app,
      (tile) => this.colouring(tile),
      (tile, row, column) => this.describeBlock(tile, row, column),
    );
    this.budget = new BudgetTrial(app, () => this.budgetChanged());
    this.arranged = new ArrangedMask(app, this.budget);
    this.layers = new LayerShares(app, this.budget);
    this.layerTable = lazyDetails(text.layerTable, () => layerTable(app, (index) => this.openLayer(index)));
    this.rowTable = lazyDetails(text.rowTable, () => rowTable(app, this.maskData));
    this.distance = new DistanceChart(app, (answer) => this.layers.takeNulls(answer));
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
          this.layers.node,
          el("p", { class: "fx-help" }, pairsText.nulls.layersHint),
          this.layers.trialNote,
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
    this.budget.update();
    this.layers.draw();
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
    this.layers.draw();
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
}
