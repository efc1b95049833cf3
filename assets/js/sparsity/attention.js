// @ts-check
// Full attention under the mask: measured on request, then a heatmap of layers by heads and the strongest links.
import { mean, range } from "../core/arrays.js";
import { setAttentionState } from "../core/attention-state.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { partOfQueryHead, someFull } from "../core/heads.js";
import { JobProgress } from "../core/job-progress.js";
import { layerFrame, layerTicks } from "../core/layer-axis.js";
import { colourScale, drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { hintButton, tooltipHead, tooltipRow } from "../core/tooltip.js";
import { alertBox, choiceOf, lazyDetails, progressBox, tableOf } from "../core/widgets.js";
import { LinkLists } from "./links.js";
import { pairs as pairsText } from "../strings/sparsity.js";
/** @import { AttentionMassPayload, AttentionPlannedPayload } from "../core/payloads.js" */
/** @import { Answer, AttentionPayload, Child } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

/** A part of the attention. @typedef {"local" | "sinks" | "grouped" | "dropped"} Part */

const text = pairsText.attention;

const POLL_MS = 700;

const NARROW = 560; // pixels; names next to each other would overlap

const PARTS = /** @type {Part[]} */ (Object.keys(text.parts));

export class AttentionPart {
  /** @type {AttentionMassPayload} */
  answer;
  /** @type {number} */
  timer;
  /** @type {number} */
  heads;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.hasAnswer = false;
    /** @type {"mass_kept" | "distant_mass_kept"} */
    this.kind = "mass_kept";
    /** @type {Run | null} */
    this.run = null;
    this.asked = 0;
    this.state = el("div", { class: "fx-attention-state", "data-testid": "fx-attention" });
    this.progress = new JobProgress(this.state, { label: text.progressLabel, stop: text.stop, role: "status" }, () =>
      this.request("stop_attention"),
    );
    this.plot = plotElement("fx-heads", text.plotLabel, "fx-heads");
    this.finding = el("p", { class: "fx-finding" });
    this.denominator = el("p", { class: "fx-help" });
    this.table = lazyDetails(text.table, () => (this.hasAnswer ? this.buildTable() : ""));
    this.links = new LinkLists(app);
    this.scaleLow = el("span", {});
    const scale = el(
      "ul",
      { class: "fx-causes" },
      el("li", {}, this.scaleLow, el("span", { class: "fx-ramp", "aria-hidden": "true" }), text.scaleHigh),
    );
    const kinds = el(
      "div",
      { class: "fx-toolbar" },
      choiceOf(text.show, text.kinds, this.kind, (kind) =>
        this.choose(/** @type {"mass_kept" | "distant_mass_kept"} */ (kind)),
      ),
      scale,
    );
    this.measured = el(
      "div",
      { hidden: true },
      this.finding,
      this.denominator,
      kinds,
      el("p", { class: "fx-help" }, text.kindHint, " ", text.clickHint),
      this.plot,
      this.table,
      this.links.node,
    );
    const title = el("h3", { class: "fx-subtitle" }, text.title, hintButton(app.tooltip, text.title, text.hint));
    this.node = el("section", { class: "fx-part" }, title, this.state, this.measured);
  }

  /** @param {"mass_kept" | "distant_mass_kept"} kind */
  choose(kind) {
    this.kind = kind;
    this.draw();
  }

  // Asks once per run; the answer of a measured run does not change.
  async update() {
    const { run } = this.app;
    if (this.run === run && this.hasAnswer) {
      this.draw();
      this.links.update();
      return;
    }
    if (this.run !== run) {
      this.run = run;
      this.hasAnswer = false;
      this.measured.hidden = true;
      this.state.replaceChildren(progressBox(text.waiting));
    }
    await this.request("attention");
  }

  /** @param {"attention" | "measure_attention" | "stop_attention"} what */
  async request(what) {
    const { run } = this.app;
    const asked = (this.asked += 1);
    clearTimeout(this.timer);
    const answer = await this.app.request(what);
    if (asked !== this.asked || this.app.run !== run || !this.app.isOpen("sparsity")) return;
    this.take(answer);
  }

  /** @param {Answer<AttentionPayload>} answer */
  take(answer) {
    if (answer.error === undefined) setAttentionState(this.app.run, answer.state);
    if (answer.error !== undefined) this.state.replaceChildren(alertBox(answer.error, () => this.request("attention")));
    else if (answer.state === "running") this.showRunning(answer);
    else if (answer.state === "done") this.showMeasured(answer);
    else this.invite(answer);
  }

  /** @param {AttentionPlannedPayload} answer */
  invite(answer) {
    const count = format.count(answer.num_tokens);
    const children = [el("p", {}, text.invite(count))];
    if (answer.num_tokens < answer.whole)
      children.push(el("p", { class: "fx-help" }, text.cut(count, format.count(answer.whole))));
    if (answer.state === "failed") children.unshift(alertBox(/** @type {string} */ (answer.problem)));
    const start = buttonOf(answer.state === "failed" ? text.again : text.measure, () => this.measure(), {
      class: "fx-button fx-main-button",
    });
    this.state.replaceChildren(
      el("div", { class: "fx-invite" }, children, start, el("p", { class: "fx-help" }, text.commandHint)),
    );
  }

  measure() {
    this.showRunning({ stage: text.waiting, fraction: 0 });
    this.request("measure_attention");
  }

  /** @param {{ stage: string, fraction: number }} given */
  showRunning({ stage, fraction }) {
    this.progress.show(stage, fraction);
    this.timer = setTimeout(() => this.app.isOpen("sparsity") && this.request("attention"), POLL_MS);
  }

  /** @param {AttentionMassPayload} answer */
  showMeasured(answer) {
    this.answer = answer;
    this.hasAnswer = true;
    this.state.replaceChildren();
    this.measured.hidden = false;
    this.links.setHeads(answer.mass_kept[0].length);
    this.draw();
    this.links.update();
  }

  /**
   * What shuffled groups and the window alone would keep of a layer; the mean over its heads. Of distant attention
   * shuffled groups keep nothing that can be said where there is none.
   * @param {number} layer
   * @returns {{ shuffled: number | null, windowOnly: number }}
   */
  nulls(layer) {
    const { answer } = this;
    const heads = answer.local[layer].map((local, head) => local + answer.sinks[layer][head]);
    const near = mean(heads);
    const far = mean(answer.grouped[layer].map((grouped, head) => grouped + answer.dropped[layer][head]));
    const distant = this.kind === "distant_mass_kept";
    return {
      shuffled: !distant ? near + far * answer.sharing[layer] : far > 0 ? answer.sharing[layer] : null,
      windowOnly: distant ? 0 : near,
    };
  }

  /**
   * Distant attention of several heads: a share of their sum, so that heads without any do not count.
   * @param {number} layer
   */
  layerMean(layer) {
    const { answer } = this;
    if (this.kind === "mass_kept") return mean(answer.mass_kept[layer]);
    const grouped = mean(answer.grouped[layer]);
    const far = grouped + mean(answer.dropped[layer]);
    return far > 0 ? grouped / far : null;
  }

  draw() {
    const { app, answer } = this;
    const { root, layerIndex } = app;
    this.heads = answer.mass_kept[0].length;
    const columns = [...range(this.heads), this.heads + 1, this.heads + 2, this.heads + 3];
    const z = answer[this.kind].map((row, layer) => {
      const { shuffled, windowOnly } = this.nulls(layer);
      return [...row, null, this.layerMean(layer), shuffled, this.kind === "mass_kept" ? windowOnly : null];
    });
    const colours = colourScale(root);
    const low = this.floor(z);
    this.scaleLow.textContent = format.percent(low);
    const trace = {
      type: "heatmap",
      z,
      x: range(this.heads + 4),
      y: range(z.length),
      zmin: low,
      zmax: 1,
      colorscale: colours,
      showscale: false,
      hoverinfo: "none",
      hoverongaps: false,
      xgap: 1,
      ygap: 1,
    };
    this.showFinding();
    this.table.refresh();
    drawPlot(app, this.plot, [trace], this.layout(columns, layerIndex), {
      hover: (point) => this.describe(.../** @type {[number, number]} */ (point.pointNumber)),
      click: (point) => this.click(.../** @type {[number, number]} */ (point.pointNumber)),
    });
  }

  /**
   * Where the colours begin: the tenth below the smallest share, so that differences show; the scale above says so.
   * @param {(number | null)[][]} z
   */
  floor(z) {
    const shares = z.flat().filter((value) => value !== null);
    return Math.min(0.9, Math.floor(Math.min(...shares) * 10) / 10);
  }

  // Of the distant attention, window and sinks keep nothing by definition: no column for that.
  nullNames() {
    const names = [text.mean, text.shuffled, this.kind === "mass_kept" ? text.windowOnly : ""];
    return this.plot.clientWidth < NARROW ? names : names.map((name) => name.replace(" ", "<br>"));
  }

  /**
   * @param {number[]} columns
   * @param {number} layerIndex
   */
  layout(columns, layerIndex) {
    const { run, root } = this.app;
    const wide = Math.ceil(this.heads / 16);
    const heads = range(this.heads).filter((head) => head % wide === 0);
    return plotLayout(root, {
      dragmode: false,
      shapes: [layerFrame(root, layerIndex)],
      xaxis: plotAxis(root, text.head, {
        tickvals: [...heads, ...columns.slice(-3)],
        ticktext: [...heads, ...this.nullNames()],
        tickangle: this.plot.clientWidth < NARROW ? -90 : 0,
        showgrid: false,
        zeroline: false,
        fixedrange: true,
      }),
      yaxis: plotAxis(root, text.layer, {
        range: [run.numLayers - 0.5, -0.5],
        ...layerTicks(run),
        showgrid: false,
        zeroline: false,
        fixedrange: true,
      }),
    });
  }

  showFinding() {
    const { answer, app } = this;
    const layers = range(answer.mass_kept.length);
    const nulls = layers.map((layer) => this.nulls(layer));
    const shares = layers.map((layer) => this.layerMean(layer));
    /** @param {(number | null)[]} values */
    const meanOfSome = (values) => format.percent(mean(values.filter((value) => value !== null)), 1);
    const [retained, shuffled] = [shares, nulls.map((value) => value.shuffled)].map(meanOfSome);
    const alone = format.percent(mean(nulls.map((value) => value.windowOnly)), 1);
    const full = someFull(app.run.layers);
    if (shares.every((share) => share === null)) this.finding.textContent = text.noneDistant;
    else
      this.finding.textContent =
        this.kind === "mass_kept"
          ? text.summary(retained, shuffled, alone, full)
          : text.summaryDistant(retained, shuffled, full);
    const counts = [layers.length, this.heads, answer.num_tokens].map(format.count);
    this.denominator.textContent =
      answer.num_tokens < app.run.numTokens
        ? text.denominatorCut(.../** @type {[string, string, string]} */ (counts), format.count(app.run.numTokens))
        : text.denominator(.../** @type {[string, string, string]} */ (counts));
  }

  /**
   * @param {number} layer
   * @param {number} column
   */
  describe(layer, column) {
    const { answer, app } = this;
    const id = app.run.layerIds[layer];
    /** @param {number | null} value */
    const share = (value) => (value === null ? text.none : format.percent(value, 1));
    if (column === this.heads || (column === this.heads + 3 && this.kind !== "mass_kept")) return null;
    const { shuffled, windowOnly } = this.nulls(layer);
    if (column === this.heads + 2)
      return [tooltipHead(text.nullCell(id, text.shuffled)), tooltipRow(text.kinds[this.kind], share(shuffled))];
    if (column === this.heads + 3)
      return [tooltipHead(text.nullCell(id, text.windowOnly)), tooltipRow(text.kinds[this.kind], share(windowOnly))];
    const whole = column > this.heads;
    /** @param {Part} name */
    const part = (name) => (whole ? mean(answer[name][layer]) : answer[name][layer][column]);
    /** @param {Part} name */
    const swatch = (name) => el("span", { class: `fx-cause fx-cause-${text.partCauses[name]}`, "aria-hidden": "true" });
    const far = part("grouped") + part("dropped");
    const { parts } = app.run.layers[layer];
    const farWords = keptFarWords(whole ? parts : [partOfQueryHead(parts, column, this.heads)]);
    return [
      tooltipHead(whole ? text.meanCell(id) : text.cell(id, column)),
      ...PARTS.map((name) =>
        tooltipRow([swatch(name), name === "grouped" ? farWords : text.parts[name]], share(part(name))),
      ),
      tooltipRow(text.kept, share(1 - part("dropped"))),
      tooltipRow(text.distantKept, share(far > 0 ? part("grouped") / far : null)),
    ];
  }

  /**
   * @param {number} layer
   * @param {number} column
   */
  click(layer, column) {
    this.links.setHead(column < this.heads ? column : null);
    if (layer === this.app.layerIndex) this.links.update();
    else this.app.setLayer(layer);
  }

  buildTable() {
    const { run } = this.app;
    const rows = this.answer[this.kind].map((values, layer) => {
      const { shuffled, windowOnly } = this.nulls(layer);
      const nulls = this.kind === "mass_kept" ? [shuffled, windowOnly] : [shuffled];
      return [
        run.layerIds[layer],
        ...[...values, this.layerMean(layer), ...nulls].map((value) =>
          value === null ? text.none : format.percent(value, 1),
        ),
      ];
    });
    return tableOf(
      [
        text.layer,
        ...range(this.heads).map((head) => pairsText.links.headNumber(head)),
        text.mean,
        text.shuffled,
        ...(this.kind === "mass_kept" ? [text.windowOnly] : []),
      ],
      rows,
    );
  }
}

/**
 * Why pairs beyond window and sinks are kept by some heads of a layer.
 * @param {{ full: boolean }[]} parts
 */
export function keptFarWords(parts) {
  if (parts.every(({ full }) => full)) return text.inFull;
  return parts.some(({ full }) => full) ? text.groupOrFull : text.parts.grouped;
}
