// @ts-check
// The Map view: tokens in two dimensions, by the routing vectors of one layer or by their groups in all layers.
import { addressOf } from "../core/address.js";
import { requestOnce } from "../core/answers.js";
import { range } from "../core/arrays.js";
import { groupColour } from "../core/colours.js";
import { decodeBase64 } from "../core/bytes.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { tokenChips } from "../core/group-names.js";
import { groupLabel } from "../core/labels.js";
import { LayerLoader } from "../core/loader.js";
import { LEGEND_ABOVE, asChart, drawPlot, plotLayout, scatterType } from "../core/plot.js";
import { selectToken, selectTokens } from "../core/selection.js";
import { cssColour, themeOf } from "../core/theme.js";
import { tokenSummary } from "../core/token-text.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox, choiceOf, progressBox } from "../core/widgets.js";
import { Neighbours } from "./neighbours.js";
import { centroids, diamondLetters, groupMeans, groupTitles, selectedPoints } from "./points.js";
import { TokenTraces, densityTrace } from "./traces.js";
import { common } from "../strings/common.js";
import { map as text } from "../strings/map.js";
/** @import { MapPayload } from "../core/payloads.js" */
/** @import { PlotPoint, UiEvent } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { Diamond } from "./points.js" */
/** @import { Selection } from "../core/selection.js" */

const LINGER = 1000; // ms on a layer before its UMAP is worth making: passing layers by should not keep the server busy

/** @typedef {keyof typeof text.colourings} Colouring */
/** @typedef {keyof typeof text.scopes} Scope */

const ALL = "all"; // stands for all layers where a layer number is expected

export class MapView {
  /** @type {HTMLDivElement} */
  status;
  /** @type {HTMLDivElement} */
  plot;
  /** @type {HTMLElement} */
  caption;
  /** @type {HTMLButtonElement} */
  goTo;
  /** @type {HTMLDivElement} */
  tools;
  /** @type {HTMLParagraphElement} */
  drawnNote;
  /** @type {MapPayload} */
  map;
  /** @type {Run} */
  run;
  /** Those of the tokens. @type {ReturnType<TokenTraces["all"]> | null} */
  traces;
  /** @type {string | null} */
  refining;
  /** @type {Diamond[]} */
  diamonds;
  /** @type {Uint8Array<ArrayBuffer>} */
  classes;
  /** @type {string[]} */
  classNames;
  /** @type {Run} */
  classesOf;
  /** @type {boolean} */
  listening;

  /**
   * @param {App} app
   * @param {HTMLElement} panel
   */
  constructor(app, panel) {
    this.app = app;
    const address = addressOf("map");
    const [scope, colour] = ["scope", "colour"].map((name) => address.get(name) ?? "");
    this.scope = /** @type {Scope} */ (Object.hasOwn(text.scopes, scope) ? scope : "layer");
    this.colouring = /** @type {Colouring} */ (Object.hasOwn(text.colourings, colour) ? colour : "group");
    /** @type {keyof typeof text.drags | "none"} */
    this.drag = window.matchMedia("(pointer: coarse)").matches ? "none" : "pan";
    this.names = true;
    this.density = false;
    this.neighbours = new Neighbours(app, this);
    this.build(panel);
    /** @type {LayerLoader<MapPayload, number | string>} */
    this.loader = new LayerLoader((run, layer) => this.load(run, layer), {
      open: () => app.isOpen("map"),
      waiting: () => this.wait(),
      ready: (map) => this.show(map),
      failed: (message) => this.fail(message),
    });
  }

  /** @param {HTMLElement} panel */
  build(panel) {
    this.status = el("div", { class: "fx-status fx-map-status", role: "status" });
    this.plot = el("div", { class: "fx-plot fx-map", role: "group", "data-testid": "fx-map" });
    this.caption = el("figcaption", { class: "fx-caption" });
    this.goTo = buttonOf(
      text.showInText,
      () => this.app.goToToken(/** @type {Selection} */ (this.app.selection).positions[0]),
      { disabled: true },
    );
    this.tools = el(
      "div",
      { class: "fx-toolbar" },
      choiceOf(text.scope, text.scopes, this.scope, (scope) => this.setScope(scope)),
      this.colourSelect(),
      choiceOf(text.drag, text.drags, this.drag, (drag) => this.setDrag(drag)),
      this.toggle("names", text.names),
      this.toggle("density", text.density),
      this.goTo,
    );
    this.drawnNote = el("p", { class: "fx-help fx-map-drawn", role: "status", hidden: true });
    panel.append(
      this.tools,
      this.status,
      el("figure", { class: "fx-figure" }, this.plot, this.drawnNote, this.caption),
      this.neighbours.node,
    );
  }

  /**
   * @param {"names" | "density"} what
   * @param {string} label
   */
  toggle(what, label) {
    /** @param {UiEvent<Event>} event */
    const onchange = (event) => {
      this[what] = event.target.checked;
      this.draw();
    };
    const box = el("input", { type: "checkbox", checked: this[what], onchange, "data-testid": `fx-map-${what}` });
    return el("label", { class: "fx-toggle" }, box, label);
  }

  colourSelect() {
    /** @param {UiEvent<Event>} event */
    const changed = (event) => {
      this.colouring = event.target.value;
      this.draw();
      this.app.writeAddress();
    };
    return el(
      "label",
      { class: "fx-select" },
      text.colourBy,
      el(
        "select",
        { "data-testid": "fx-map-colour", onchange: changed },
        Object.entries(text.colourings).map(([value, label]) =>
          el("option", { value, selected: value === this.colouring }, label),
        ),
      ),
    );
  }

  get parameters() {
    return {
      scope: this.scope === "layer" ? null : this.scope,
      colour: this.colouring === "group" ? null : this.colouring,
    };
  }

  /** @param {Scope} scope */
  setScope(scope) {
    this.scope = scope;
    this.update();
    this.app.writeAddress();
  }

  /** Whether there is a chart to change; before that it is drawn with what is chosen by then. */
  get isDrawn() {
    return this.plot.classList.contains("js-plotly-plot");
  }

  /** @param {keyof typeof text.drags} drag */
  setDrag(drag) {
    this.drag = drag;
    if (!this.isDrawn) this.draw();
    else if (this.map) Plotly.relayout(this.plot, { dragmode: drag });
  }

  update() {
    const { run, layerIndex } = this.app;
    if (this.run !== run) this.map = /** @type {any} */ (null);
    this.run = run;
    this.loader.request(run.info.run_id, this.scope === "all" ? ALL : run.layerIds[layerIndex]);
  }

  /**
   * @param {string} run
   * @param {number | string} layer
   */
  load(run, layer) {
    return this.app.request("map", { run, layer: layer === ALL ? null : layer, quick: true });
  }

  wait() {
    this.plot.classList.add("fx-stale");
    this.status.replaceChildren(el("p", { class: "fx-muted" }, text.waiting));
  }

  /**
   * The map of another layer must not stand under this one's name.
   * @param {string} message
   */
  fail(message) {
    this.traces = null;
    this.map = /** @type {any} */ (null);
    this.diamonds = [];
    this.caption.replaceChildren();
    this.drawnNote.hidden = true;
    if (this.isDrawn)
      drawPlot(this.app, this.plot, [], this.layout(), { hover: () => null });
    this.plot.classList.remove("fx-stale");
    this.status.replaceChildren(alertBox(message, () => this.update()));
  }

  /** @param {MapPayload} map */
  show(map) {
    this.map = map;
    this.plot.classList.remove("fx-stale");
    this.status.replaceChildren();
    this.draw();
    if (map.preliminary) this.refine(map);
  }

  /**
   * The server's quick PCA is on the screen; its UMAP takes its place when it is ready.
   * @param {MapPayload} map
   */
  async refine(map) {
    const key = this.loader.requested;
    const [, layer] = JSON.parse(key);
    const { run } = this.app;
    this.status.replaceChildren(progressBox(text.refining(format.count(map.positions.length))));
    if (this.refining === key) return;
    this.refining = key;
    await new Promise((resolve) => setTimeout(resolve, LINGER));
    if (this.refining !== key) return;
    if (this.loader.requested !== key || !this.app.isOpen("map")) {
      this.refining = null;
      return;
    }
    const better = await this.app.request("map", { layer: layer === ALL ? null : layer });
    if (this.refining === key) this.refining = null;
    if (better.error === undefined) this.loader.remember(key, better);
    if (this.loader.requested !== key || this.app.run !== run || !this.app.isOpen("map")) return;
    if (better.error === undefined) this.show(better);
    else this.status.replaceChildren(alertBox(text.refineFailed(better.error), () => this.refine(map)));
  }

  async draw() {
    const { app, map } = this;
    if (!map) return;
    if (this.colouring === "class" && this.classesOf !== app.run && !(await this.loadClasses())) return;
    const all = map.centroid_x.length === 0;
    this.plot.setAttribute("aria-label", all ? text.allLabel : text.plotLabel(app.run.layerIds[app.layerIndex]));
    this.caption.replaceChildren(...this.captionOf(all));
    this.diamonds = all ? groupMeans(app, map) : centroids(map);
    this.traces = new TokenTraces(this).all();
    const density = this.density ? [densityTrace(app, map)] : [];
    await drawPlot(app, this.plot, [...this.traces, this.diamondTrace(all), ...density], this.layout(), {
      hover: (point) => this.describe(point),
      click: (point) =>
        point.data.meta?.tokens && app.toggleSelection(selectToken(point.data.meta.tokens[point.pointNumber])),
    });
    this.addListeners();
    this.updateGoTo();
    this.countDrawn();
    this.neighbours.update();
  }

  /** Lines to the neighbours of the selected token, over what is drawn. */
  drawLines() {
    if (this.map && this.isDrawn) Plotly.relayout(this.plot, { shapes: this.neighbours.lines() });
  }

  async loadClasses() {
    const { run } = this.app;
    const answer = await requestOnce(this.app, "groups");
    if (this.app.run !== run || !this.app.isOpen("map") || this.colouring !== "class") return false;
    if (answer.error !== undefined) {
      this.status.replaceChildren(alertBox(answer.error, () => this.draw()));
      return false;
    }
    this.classes = decodeBase64(answer.classes);
    this.classNames = answer.class_names;
    this.classesOf = run;
    return true;
  }

  addListeners() {
    if (this.listening) return;
    this.listening = true;
    asChart(this.plot).on("plotly_selected", (event) => event && event.points && this.lassoed(event.points));
  }

  /** @param {PlotPoint[]} points */
  lassoed(points) {
    const positions = points
      .filter((point) => point.data.meta.tokens)
      .map((point) => point.data.meta.tokens[point.pointNumber]);
    // The outline has done its work; what is selected shows in every view from here on.
    Plotly.relayout(this.plot, { selections: [] });
    if (positions.length > 0)
      this.app.select(selectTokens(positions, "lasso", text.lassoed(format.count(positions.length))));
    else this.selectionChanged();
  }

  // Only the opacity of points changes: their places and colours stay in the graphics memory.
  selectionChanged() {
    if (!this.map || !this.traces) return;
    if (!this.isDrawn) {
      this.draw();
      return;
    }
    const { selection } = this.app;
    const chosen = this.traces.map(({ meta }) => selectedPoints(meta.tokens, selection));
    Plotly.restyle(this.plot, { selectedpoints: chosen }, range(this.traces.length));
    this.updateGoTo();
    this.countDrawn();
    this.neighbours.update();
  }

  // A map of some of the tokens cannot show all of a selection; its line keeps its place, so that nothing moves.
  countDrawn() {
    const { run, selection } = this.app;
    this.drawnNote.hidden = this.map.positions.length === run.numTokens;
    if (this.drawnNote.hidden) return;
    const shown = selection === null ? 0 : this.map.positions.filter((pos) => selection.has(pos)).length;
    this.drawnNote.textContent =
      selection === null || shown === selection.size
        ? ""
        : text.selectionDrawn(format.count(shown), format.count(selection.size));
  }

  updateGoTo() {
    this.goTo.disabled = this.app.selection === null;
  }

  layout() {
    const bare = { showticklabels: false, ticks: "", zeroline: false, showgrid: false };
    const below = { orientation: "h", x: 0, y: -0.02, yanchor: "top" }; // where a colour scale stands instead
    const hasScale = this.traces?.some(({ marker }) => "colorbar" in marker);
    return plotLayout(this.app.root, {
      dragmode: this.drag === "none" ? false : this.drag,
      annotations: [
        ...diamondLetters(this.app, this.diamonds),
        ...(this.names && this.map ? this.titles() : []),
      ],
      shapes: this.neighbours.lines(),
      // A zoomed map stays zoomed when only colours change.
      uirevision: `${this.app.run.info.run_id} ${this.loader.requested} ${this.map?.method}`,
      xaxis: { ...bare },
      yaxis: { ...bare, scaleanchor: "x" },
      legend: { ...(hasScale ? LEGEND_ABOVE : below), itemsizing: "constant" },
      newselection: { line: { color: cssColour(this.app.root, "accent"), width: 2, dash: "solid" } },
    });
  }

  titles() {
    return groupTitles(this.app, this.map, { width: this.plot.clientWidth, height: this.plot.clientHeight });
  }

  /** @param {PlotPoint} point */
  describe(point) {
    const { app } = this;
    const { tokens } = point.data.meta;
    if (!tokens) return [el("p", { class: "fx-tooltip-text" }, this.diamondWords(this.diamonds[point.pointNumber]))];
    const pos = tokens[point.pointNumber];
    return tokenSummary(
      app.run,
      pos,
      el(
        "div",
        {},
        tokenChips(app.run, app.layerIndex, pos, app.part),
      ),
    );
  }

  /** @param {Diamond} given */
  diamondWords({ group, count }) {
    const { run, layerIndex } = this.app;
    if (count === undefined) return text.centroid(groupLabel(group));
    const whole = this.map.positions.length === run.numTokens;
    return (whole ? text.mean : text.meanDrawn)(groupLabel(group), run.layerIds[layerIndex], format.count(count));
  }

  /** @param {boolean} all */
  diamondTrace(all) {
    const { root } = this.app;
    const theme = themeOf(root);
    return {
      type: scatterType(),
      mode: "markers",
      name: all ? text.means : text.centroids,
      x: this.diamonds.map(({ x }) => x),
      y: this.diamonds.map(({ y }) => y),
      hoverinfo: "none",
      meta: {},
      showlegend: false,
      selectedpoints: null,
      marker: {
        symbol: "diamond",
        size: all ? 24 : 30,
        color: cssColour(root, "surface"),
        line: { width: 4, color: this.diamonds.map(({ group }) => groupColour(group, theme)) },
      },
    };
  }

  /** @param {boolean} all */
  captionOf(all) {
    const { map, app } = this;
    const { n_neighbors: neighbours, min_dist: minDist, metric } = map.parameters || {};
    const parts = [
      text.drawn(format.count(map.positions.length), format.count(app.run.numTokens)),
      text.seed(map.seed),
      neighbours === undefined ? null : text.neighbours(neighbours),
      minDist === undefined ? null : text.minDist(minDist),
      metric === undefined ? null : text.metric(metric),
    ].filter((part) => part !== null);
    const words = (all ? text.allCaption : text.layerCaption)(
      map.method,
      parts.join(", "),
      app.run.layerIds[app.layerIndex],
    );
    const measured = map.trustworthiness === null ? common.notMeasured : format.decimal(map.trustworthiness, 2);
    const trust = el(
      "strong",
      {},
      text.trustworthiness(measured),
      hintButton(app.tooltip, text.trustworthinessSubject, text.trustworthinessHint),
    );
    return [words, all ? hintButton(app.tooltip, text.allSubject, text.allHint) : "", ` ${text.use} `, trust];
  }
}
