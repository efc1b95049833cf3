// @ts-check
// How tokens move between the groups of a few layers: columns of blocks, and bands between them.
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { namedLabel } from "../core/group-names.js";
import { groupLabel } from "../core/labels.js";
import { selectGroup, selectTokens } from "../core/selection.js";
import { svg } from "../core/svg.js";
import { lazyDetails, tableOf } from "../core/widgets.js";
import { BLOCK, HEIGHT, bandPath, countFlow, place } from "./flow-layout.js";
import { FlowLayers, MOST_LAYERS } from "./flow-layers.js";
import { groups as groupsText } from "../strings/groups.js";
/** @import { UiEvent } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Band, Block, Column, Flow } from "./flow-layout.js" */

const text = groupsText.flow;

const LEAST_SHARE = 0.0075; // of all tokens; thinner bands could not be hit with a mouse

const TABLE_ROWS = 30;

export class GroupFlow {
  /** @type {number[]} */
  layers;
  /** @type {number} */
  width;
  /** @type {Flow[]} */
  flows;
  /** @type {Column[]} */
  columns;
  /** @type {Band[]} */
  bands;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.choice = new FlowLayers(app, () => this.update());
    this.chart = el("div", { class: "fx-flow", "data-testid": "fx-flow" });
    this.note = el("p", { class: "fx-help" });
    this.table = lazyDetails(text.table, () => this.flowTable());
    this.node = el(
      "section",
      {},
      el("h3", { class: "fx-subtitle" }, text.title),
      el("p", { class: "fx-help" }, text.help),
      this.choice.node,
      el("p", { class: "fx-help" }, text.limit(MOST_LAYERS)),
      this.chart,
      this.note,
      this.table,
    );
    // Bands are laid out in pixels, so a new width needs a new drawing.
    new ResizeObserver(
      () => this.width !== this.chart.clientWidth && this.chart.clientWidth > 0 && this.layers && this.draw(),
    ).observe(this.chart);
  }

  update() {
    this.layers = this.choice.update();
    this.draw();
    this.table.refresh();
  }

  /**
   * Show just these two layers; the open one is one of them.
   * @param {number} first
   * @param {number} second
   */
  compare(first, second) {
    this.choice.setLayers([first, second]);
  }

  draw() {
    this.width = this.chart.clientWidth;
    if (this.width === 0) return;
    const { run } = this.app;
    this.flows = this.layers
      .slice(1)
      .map((layer, i) => ({ from: this.layers[i], to: layer, counts: countFlow(run, this.layers[i], layer) }));
    this.columns = place(run, this.layers, this.flows, this.width);
    const bands = this.flows.flatMap((flow, i) => this.bandsOf(flow, this.columns[i], this.columns[i + 1]));
    this.bands = bands.filter((band) => band.count / run.numTokens >= LEAST_SHARE);
    const ids = this.layers.map((layer) => run.layerIds[layer]).join(", ");
    const drawing = svg(
      "svg",
      {
        width: this.width,
        height: HEIGHT,
        viewBox: `0 0 ${this.width} ${HEIGHT}`,
        role: "group",
        "aria-label": text.chart(ids),
      },
      ...this.bands.map((band) => this.band(band)),
      ...this.columns.map((column) => this.column(column)),
    );
    this.chart.replaceChildren(drawing);
    this.writeNote(bands);
    this.selectionChanged();
  }

  /** @param {Band[]} bands */
  writeNote(bands) {
    if (this.layers.length < 2) {
      this.note.textContent = text.single;
      return;
    }
    const all = bands.reduce((sum, band) => sum + band.count, 0);
    const shown = this.bands.reduce((sum, band) => sum + band.count, 0);
    this.note.textContent =
      shown === all ? text.shown : text.hidden(format.percent(LEAST_SHARE, 2), format.percent(1 - shown / all, 1));
  }

  /**
   * Bands leave a block in the order in which their targets stand, so that they cross little.
   * @param {Flow} flow
   * @param {Column} left
   * @param {Column} right
   * @returns {Band[]}
   */
  bandsOf(flow, left, right) {
    const scale = left.scale;
    const groups = this.app.run.numGroups;
    const leftAt = left.blocks.map((block) => block.y);
    const rightAt = right.blocks.map((block) => block.y);
    const bands = [];
    for (const from of left.order) {
      for (const to of right.order) {
        const count = flow.counts[from * groups + to];
        if (count === 0) continue;
        const height = count * scale;
        bands.push({
          flow,
          from,
          to,
          count,
          height,
          x0: left.x + BLOCK,
          x1: right.x,
          y0: leftAt[from],
          y1: rightAt[to],
        });
        leftAt[from] += height;
        rightAt[to] += height;
      }
    }
    return bands;
  }

  /** @param {Band} band */
  band(band) {
    const hide = () => this.app.tooltip.hide();
    band.chosen = svg("path", { class: "fx-band-chosen", d: "" });
    return svg(
      "g",
      {
        class: "fx-band",
        "data-shade": `g${band.from}`,
        onclick: () => this.selectBand(band),
        onmousemove: (event) => this.describeBand(band, event),
        onmouseleave: hide,
      },
      svg("path", { class: "fx-band-all", d: bandPath(band, 0, band.height) }),
      band.chosen,
    );
  }

  /** @param {Column} column */
  column(column) {
    const { run, layerIndex } = this.app;
    const layer = run.layerIds[column.layer];
    const open = column.layer === layerIndex;
    const anchor = column.place === "first" ? "start" : column.place === "last" ? "end" : "middle";
    const x = { start: column.x, middle: column.x + BLOCK / 2, end: column.x + BLOCK }[anchor];
    const title = svg(
      "text",
      { class: open ? "fx-flow-layer fx-open" : "fx-flow-layer", x, y: 16, "text-anchor": anchor },
      this.width < 560 ? String(layer) : text.column(layer),
    );
    return svg(
      "g",
      {},
      title,
      ...column.blocks.filter((block) => block.count > 0).map((block) => this.block(column, block)),
    );
  }

  /**
   * @param {Column} column
   * @param {Block} block
   */
  block(column, block) {
    const { app } = this;
    const { run } = app;
    const layer = run.layerIds[column.layer];
    const name = namedLabel(run, column.layer, block.group);
    const label = text.node(name, layer, format.percent(block.count / run.numTokens, 1));
    const choose = () => app.toggleSelection(selectGroup(run, column.layer, block.group));
    /** @param {UiEvent<KeyboardEvent>} event */
    const key = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose();
    };
    /** @param {UiEvent<Event>} event */
    const show = (event) =>
      app.tooltip.show(el("p", { class: "fx-tooltip-text" }, label), event.currentTarget.getBoundingClientRect());
    const hide = () => app.tooltip.hide();
    const shape = svg("rect", { x: column.x, y: block.y, width: BLOCK, height: Math.max(1, block.height), rx: 3 });
    const letter =
      block.height < 13
        ? []
        : [
            svg(
              "text",
              {
                x: column.x + BLOCK / 2,
                y: block.y + block.height / 2,
                "text-anchor": "middle",
                "dominant-baseline": "central",
              },
              groupLabel(block.group),
            ),
          ];
    block.node = svg(
      "g",
      {
        class: "fx-flow-block",
        "data-shade": `g${block.group}`,
        role: "button",
        tabindex: 0,
        "aria-label": label,
        onclick: choose,
        onkeydown: key,
        onmouseenter: show,
        onmouseleave: hide,
        onfocus: show,
        onblur: hide,
      },
      shape,
      ...letter,
    );
    return block.node;
  }

  /**
   * @param {Band} band
   * @param {UiEvent<MouseEvent>} event
   */
  describeBand(band, event) {
    const { run } = this.app;
    const { flow } = band;
    const [from, to] = [groupLabel(band.from), groupLabel(band.to)];
    const left = /** @type {Column} */ (this.columns.find((column) => column.layer === flow.from)).blocks[band.from]
      .count;
    const right = /** @type {Column} */ (this.columns.find((column) => column.layer === flow.to)).blocks[band.to].count;
    const words = [
      text.link(from, run.layerIds[flow.from], to, run.layerIds[flow.to]),
      text.linkShares(
        format.count(band.count),
        from,
        format.percent(band.count / left),
        to,
        format.percent(band.count / right),
      ),
    ];
    const { clientX: x, clientY: y } = event;
    this.app.tooltip.show(
      words.map((line) => el("p", { class: "fx-tooltip-text" }, line)),
      { left: x, right: x, top: y - 8, bottom: y + 8, width: 0 },
    );
  }

  /** @param {Band} band */
  selectBand(band) {
    const { run } = this.app;
    const { flow } = band;
    const positions = range(run.numTokens).filter(
      (pos) => run.top(flow.from, pos) === band.from && run.top(flow.to, pos) === band.to,
    );
    const label = text.selection(
      groupLabel(band.from),
      run.layerIds[flow.from],
      groupLabel(band.to),
      run.layerIds[flow.to],
    );
    this.app.toggleSelection(selectTokens(positions, "tokens", label));
  }

  // The selected part of every band is drawn strong, from its upper edge.
  selectionChanged() {
    if (!this.bands) return;
    const { run, selection } = this.app;
    this.chart.classList.toggle("fx-flow-selecting", selection !== null);
    const counts = new Map(
      selection === null
        ? []
        : this.flows.map((flow) => [flow, countFlow(run, flow.from, flow.to, selection.positions)]),
    );
    for (const band of this.bands) {
      const selected = counts.get(band.flow)?.[band.from * run.numGroups + band.to] ?? 0;
      const path = selected === 0 ? "" : bandPath(band, 0, (band.height * selected) / band.count);
      /** @type {Element} */ (band.chosen).setAttribute("d", path);
    }
    const origin = selection && selection.origin.kind === "group" ? selection.origin : null;
    for (const column of this.columns) {
      for (const block of column.blocks) {
        if (block.node)
          block.node.setAttribute(
            "aria-pressed",
            String(origin !== null && origin.layer === run.layerIds[column.layer] && origin.group === block.group),
          );
      }
    }
  }

  flowTable() {
    const { run } = this.app;
    const rows = [...this.bands].sort((a, b) => b.count - a.count).slice(0, TABLE_ROWS);
    /** @param {number} layer @param {number} group */
    const size = (layer, group) =>
      /** @type {Column} */ (this.columns.find((column) => column.layer === layer)).blocks[group].count;
    return tableOf(
      text.columns,
      rows.map((band) => {
        const { from: a, to: b } = band.flow;
        const words = text.link(groupLabel(band.from), run.layerIds[a], groupLabel(band.to), run.layerIds[b]);
        const button = buttonOf(words, () => this.selectBand(band));
        return [
          button,
          format.count(band.count),
          format.percent(band.count / size(a, band.from)),
          format.percent(band.count / size(b, band.to)),
        ];
      }),
    );
  }
}
