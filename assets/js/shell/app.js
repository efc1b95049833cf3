// @ts-check
// The explorer: owns the run, the layer, the selection and the open view, and keeps them in the address.
import { buttonOf, el, emptyState } from "../core/dom.js";
import { resizeHiddenPlots, resizePlots } from "../core/plot.js";
import { loadPlotly, prefetchPlotly } from "../core/plotly.js";
import { fetchGroupNames } from "../core/group-names.js";
import { partOf, runHead } from "../core/heads.js";
import { Run } from "../core/run.js";
import { decodeSelection, encodeSelection } from "../core/selection-code.js";
import { callServer } from "../core/server.js";
import { installShades } from "../core/shades.js";
import { Tabs } from "../core/tabs.js";
import { watchTheme } from "../core/theme.js";
import { Tooltip } from "../core/tooltip.js";
import { alertBox, progressBox } from "../core/widgets.js";
import { guidedAnswer } from "./answer.js";
import { foldForm } from "./form.js";
import { headerActions } from "./header-actions.js";
import { renewHeader, runHeader } from "./header.js";
import { LayerControl } from "./layer-control.js";
import { SelectionBar } from "./selection-bar.js";
import { VIEWS } from "./views.js";
import { shell as text } from "../strings/shell.js";
/** @import { RunPayload } from "../core/payloads.js" */
/** @import { Selection } from "../core/selection.js" */
/** @import { Answer, Answers, Details, ExplorerServer, View } from "../core/types.js" */

/** @typedef {keyof typeof VIEWS} ViewName */
/** @typedef {{ [Name in ViewName]: InstanceType<(typeof VIEWS)[Name]> }} Views */

/** @type {WeakMap<HTMLElement, App>} */
const apps = new WeakMap();

const SLIDER_PAUSE = 60; // ms

const PLOTLY_PAUSE = 4000; // ms

export class App {
  /** @type {Tooltip} */
  tooltip;
  /** @type {HTMLDivElement} */
  message;
  /** @type {HTMLDivElement} */
  headerPlace;
  /** @type {HTMLDivElement} */
  problemPlace;
  /** @type {LayerControl} */
  layerControl;
  /** @type {SelectionBar} */
  selectionBar;
  /** @type {Tabs} */
  tabs;
  /** @type {Views} */
  views;
  /** @type {HTMLDivElement} */
  content;
  /** @type {MutationObserver} */
  themeObserver;
  /** @type {ResizeObserver} */
  sizeObserver;

  /** The open run. No view is updated before there is one. @type {Run} */
  run = /** @type {any} */ (null);
  /** @type {Selection | null} */
  selection = null;
  layerIndex = 0;
  /** The layer and selection that the address asks for, until the first run is open. @type {number | null} */
  requestedLayer = null;
  /** The head of the run (see `runHead`) whose mask is shown, where those of a layer differ. @type {number | null} */
  head = null;
  /** @type {string | null} */
  requestedSelection = null;
  /** @type {ViewName} */
  view = "tokens";

  /**
   * @param {HTMLElement} root
   * @param {ExplorerServer} server
   */
  constructor(root, server) {
    this.root = root;
    this.server = server;
    this.opening = 0;
    this.layerTimer = 0;
    this.readAddress();
    this.build();
    this.watch();
    this.clear();
  }

  readAddress() {
    const address = new URLSearchParams(window.location.search);
    const view = address.get("view");
    if (view !== null && Object.hasOwn(VIEWS, view)) this.view = /** @type {ViewName} */ (view);
    this.requestedLayer = address.has("layer") ? Number(address.get("layer")) : null;
    this.head = address.has("head") ? Number(address.get("head")) : null;
    this.requestedSelection = address.get("sel");
  }

  build() {
    installShades();
    this.tooltip = new Tooltip(this.root);
    this.message = el("div", { class: "fx-message" });
    this.headerPlace = el("div");
    this.problemPlace = el("div"); // a layer that could not be fetched, whichever view is open
    this.layerControl = new LayerControl((index) => this.setLayer(index));
    this.selectionBar = new SelectionBar(() => this.select(null));
    const names = Object.fromEntries(
      Object.keys(VIEWS).map((name) => [name, text.tabs[/** @type {ViewName} */ (name)]]),
    );
    this.tabs = new Tabs(names, text.tabsLabel, (name) => this.openView(/** @type {ViewName} */ (name)));
    const views = Object.entries(VIEWS).map(([name, View]) => [name, new View(this, this.tabs.panels[name])]);
    this.views = /** @type {Views} */ (Object.fromEntries(views));
    this.content = el(
      "div",
      { class: "fx-content" },
      this.headerPlace,
      el("div", { class: "fx-bar-sticky" }, this.tabs.list, this.selectionBar.node, this.layerControl.node),
      this.problemPlace,
      Object.values(this.tabs.panels),
    );
    this.root.classList.add("fx-root");
    this.root.replaceChildren(this.message, this.content, this.tooltip.node);
  }

  watch() {
    const loadCharts = () => loadPlotly().catch(() => {}); // the first chart reports a failure
    for (const event of ["pointerover", "focusin"]) this.tabs.list.addEventListener(event, loadCharts, { once: true });
    this.root.addEventListener("keydown", (event) => event.key === "Escape" && this.escape());
    this.themeObserver = watchTheme(this.root, () => this.isOpen(this.view) && this.refresh());
    this.sizeObserver = new ResizeObserver(() => this.isOpen(this.view) && resizePlots(this.tabs.panels[this.view]));
    this.sizeObserver.observe(this.root);
  }

  // The first Escape closes a tooltip, the next lets go of the selection.
  escape() {
    if (!this.tooltip.node.hidden) this.tooltip.hide();
    else if (this.run && this.selection) this.select(null);
  }

  dispose() {
    this.themeObserver.disconnect();
    this.sizeObserver.disconnect();
  }

  /**
   * One named question about a run (focus_explorer/web/requests/dispatch.py).
   * A failing call gives {error} like the server itself.
   * @template {keyof Answers} K
   * @param {K} what
   * @param {Details} [details]
   * @returns {Promise<Answer<Answers[K]>>}
   */
  request(what, details = {}) {
    return callServer(() => this.server.ask({ what, run: this.run.info.run_id, ...details }));
  }

  /**
   * @param {string} runId
   * @param {boolean} [isTiming] whether its passes are still being timed
   */
  async open(runId, isTiming = false) {
    const requestId = (this.opening += 1);
    this.showMessage(progressBox(text.loadingRun));
    const payload = await callServer(() => this.server.load_run(runId));
    if (requestId !== this.opening) return;
    if (payload.error === undefined) this.show(payload, isTiming);
    else if (payload.deleted && this.server.restore) this.offerBack(runId);
    else this.showMessage(alertBox(payload.error, () => this.open(runId)));
  }

  /** @param {string} runId */
  offerBack(runId) {
    const words = text.deleted;
    const back = buttonOf(words.restore, async () => {
      const answer = await callServer(() => /** @type {any} */ (this.server).restore(runId));
      if (answer.error === undefined) this.open(runId);
      else this.showMessage(alertBox(answer.error, () => this.open(runId)));
    });
    const newest = el("a", { class: "fx-button fx-link-button", href: window.location.pathname }, words.newest);
    const attributes = { class: "fx-alert", role: "alert", "data-testid": "fx-deleted" };
    this.showMessage(el("div", attributes, el("p", {}, words.title), back, newest));
  }

  /**
   * Timings are repeated after a long text's run is open: they are the one thing that changes of it.
   * @param {string} runId
   * @param {boolean} isTiming whether more of them follow
   */
  async renewTimings(runId, isTiming) {
    const { run } = this;
    if (!run || run.info.run_id !== runId) return;
    const answer = await this.request("timings");
    if (answer.error !== undefined || this.run !== run) return; // they come with the run when it is opened again
    run.timings = answer.timings;
    run.isTiming = isTiming;
    renewHeader(this.headerPlace, run, this.tooltip);
    if (this.isOpen("compare") || this.isOpen("statistics")) this.refresh();
  }

  /**
   * @param {RunPayload} payload
   * @param {boolean} [isTiming]
   */
  show(payload, isTiming = false) {
    this.opening += 1;
    const isFirst = this.run === null;
    try {
      this.run = new Run(payload, (what, details) =>
        callServer(() => this.server.ask({ what, run: payload.run.run_id, ...details })),
      );
    } catch (error) {
      this.run = /** @type {any} */ (null);
      this.showMessage(alertBox(text.badPayload(error.message)));
      return;
    }
    this.run.isTiming = isTiming;
    this.layerIndex = this.startLayer();
    this.selection = decodeSelection(this.requestedSelection, this.run);
    this.requestedSelection = null;
    this.selectionBar.update(this.selection);
    this.showContent();
    foldForm(payload.run.run_id, isFirst);
    this.headerPlace.replaceChildren(runHeader(this.run, this.tooltip, headerActions(this), guidedAnswer(this)));
    this.problemPlace.replaceChildren();
    this.layerControl.update(this.run, this.layerIndex);
    this.openView(this.view);
    this.loadLayer();
    window.requestIdleCallback(() => prefetchPlotly(), { timeout: PLOTLY_PAUSE });
    this.nameGroups();
    this.sayTraining();
  }

  // What the centroids were trained on explains most of what they lose on other texts.
  async sayTraining() {
    const { run } = this;
    const answer = await this.request("trained_on");
    if (answer.error !== undefined || this.run !== run || answer.texts.length === 0) return;
    run.trainedOn = answer.texts;
    renewHeader(this.headerPlace, run, this.tooltip);
  }

  // Views that are drawn with many letters are drawn again once these have names; others have them when they open.
  async nameGroups(anew = false) {
    const isNew = await fetchGroupNames(this, anew);
    if (isNew && ["tokens", "groups", "map"].some((view) => this.isOpen(view))) this.refresh();
  }

  // A long run sends membership and probabilities layer by layer; the open view is drawn again when those it lacks
  // arrive. While the slider still moves nothing is requested.
  loadLayer() {
    const { run, layerIndex } = this;
    const loaded = run.hasLayer(layerIndex);
    const current = () => this.run === run && this.layerIndex === layerIndex;
    clearTimeout(this.layerTimer);
    this.layerTimer = setTimeout(
      async () => {
        const problem = await run.whenLayer(layerIndex).then(
          () => null,
          (error) => error.message,
        );
        if (!current()) return;
        this.problemPlace.replaceChildren(...(problem === null ? [] : [alertBox(problem, () => this.loadLayer())]));
        if (problem !== null) this.views.tokens.layerFailed(problem);
        if (!run.hasLayer(layerIndex)) return;
        if (!loaded) this.refresh();
        run.prefetchAround(layerIndex);
      },
      loaded ? 0 : SLIDER_PAUSE,
    );
  }

  // The layer requested by the address, else the one just looked at, else the middle, where groups say most.
  startLayer() {
    const named = this.run.layerIds.indexOf(/** @type {number} */ (this.requestedLayer));
    return named >= 0 ? named : Math.floor(this.run.numLayers / 2);
  }

  /** @param {string} [message] */
  clear(message) {
    this.opening += 1;
    this.run = /** @type {any} */ (null);
    this.showMessage(emptyState(text.empty.title, message || text.empty.body));
  }

  /** @param {Node} node */
  showMessage(node) {
    this.tooltip.hide();
    this.message.replaceChildren(node);
    this.message.hidden = false;
    this.content.hidden = true;
  }

  showContent() {
    this.message.replaceChildren();
    this.message.hidden = true;
    this.content.hidden = false;
  }

  /** @param {number} index */
  setLayer(index) {
    if (index < 0 || index >= this.run.numLayers || index === this.layerIndex) return;
    const start = performance.now();
    this.layerIndex = index;
    this.requestedLayer = this.run.layerIds[index];
    this.tooltip.hide();
    this.problemPlace.replaceChildren();
    this.layerControl.update(this.run, index);
    this.refresh();
    this.loadLayer();
    this.root.dataset.switchMs = (performance.now() - start).toFixed(1);
    this.writeAddress();
  }

  /** The heads shown of the open layer, a place in its `parts`. */
  get part() {
    const { layers } = this.run;
    return partOf(layers, layers[this.layerIndex].parts, this.head);
  }

  /**
   * @param {number} part
   * @param {number} [head] of the part, as the layer numbers heads; the first by itself
   */
  setPart(part, head) {
    const { layers } = this.run;
    const { parts } = layers[this.layerIndex];
    this.head = runHead(layers, parts, head ?? parts[part].heads[0]);
    this.tooltip.hide();
    this.refresh();
    this.writeAddress();
  }

  /**
   * Choose tokens for every view; null lets go of them. A view that can restyle cheaply has `selectionChanged`.
   * @param {Selection | null} selection
   */
  select(selection) {
    const start = performance.now();
    this.selection = selection && selection.size > 0 ? selection : null;
    this.selectionBar.update(this.selection);
    const view = this.views[this.view];
    if (view.selectionChanged) view.selectionChanged();
    else view.update();
    this.root.dataset.selectMs = (performance.now() - start).toFixed(1);
    this.writeAddress();
  }

  /**
   * Choosing what is chosen already lets go of it.
   * @param {Selection} selection
   */
  toggleSelection(selection) {
    this.select(selection.equals(this.selection) ? null : selection);
  }

  /** @param {ViewName} name */
  openView(name) {
    this.view = name;
    this.tooltip.hide();
    this.tabs.choose(name);
    this.refresh();
    resizeHiddenPlots(this.tabs.panels[name]);
    this.writeAddress();
  }

  /** @param {string} name */
  isOpen(name) {
    return this.run !== null && !this.content.hidden && this.view === name;
  }

  // Only the open view is drawn: charts drawn in a hidden panel would have no height.
  refresh() {
    this.views[this.view].update();
  }

  /** @param {number} pos */
  goToToken(pos) {
    this.openView("tokens");
    this.views.tokens.goTo(pos);
  }

  /** Where settings of top-k and window are measured. */
  openSettings() {
    this.openView("compare");
    this.views.compare.show("settings");
  }

  writeAddress() {
    const address = new URL(window.location.href);
    address.searchParams.set("run", this.run.info.run_id);
    address.searchParams.set("layer", String(this.run.layerIds[this.layerIndex]));
    address.searchParams.set("view", this.view);
    const differ = this.run.layers.some(({ parts }) => parts.length > 1);
    if (differ && this.head !== null) address.searchParams.set("head", String(this.head));
    else address.searchParams.delete("head");
    const views = /** @type {Record<string, View>} */ (this.views);
    const part = views[this.view].part;
    if (part) address.searchParams.set("part", part);
    else address.searchParams.delete("part");
    // What a view keeps there of itself: absent where it is the default, and gone when another view is open.
    const viewParameters = Object.entries(views).flatMap(([name, view]) =>
      Object.entries(view.parameters || {}).map(([key, value]) => [key, name === this.view ? value : null]),
    );
    for (const [key] of viewParameters) address.searchParams.delete(String(key));
    for (const [key, value] of viewParameters) if (value !== null) address.searchParams.set(String(key), String(value));
    const selected = encodeSelection(this.selection);
    if (selected === null) address.searchParams.delete("sel");
    else address.searchParams.set("sel", selected);
    window.history.replaceState(window.history.state, "", address);
  }
}

/** The public API of the page: one explorer per root element. */
export const FocusExplorer = {
  /**
   * @param {HTMLElement} root
   * @param {ExplorerServer} server
   */
  create(root, server) {
    if (apps.has(root)) /** @type {App} */ (apps.get(root)).dispose();
    const app = new App(root, server);
    apps.set(root, app);
    return {
      /**
       * @param {string} runId
       * @param {boolean} [isTiming]
       */
      open: (runId, isTiming) => app.open(runId, isTiming),
      /**
       * @param {string} runId
       * @param {boolean} isTiming
       */
      renewTimings: (runId, isTiming) => app.renewTimings(runId, isTiming),
      /** @param {RunPayload} payload */
      show: (payload) => app.show(payload),
      /** @param {string} [message] */
      clear: (message) => app.clear(message),
    };
  },
};
