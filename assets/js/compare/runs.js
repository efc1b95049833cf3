// @ts-check
// Two stored runs of the same tokens: matched groups by layer, tokens that changed group, loss differences.
import { selectedMarks, stems } from "./loss-chart.js";
import { runNumbers } from "./numbers.js";
import { TokenWalk } from "./token-walk.js";
import { addressOf } from "../core/address.js";
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { dropdown } from "../core/fields.js";
import { format } from "../core/format.js";
import { groupLabel, visibleToken } from "../core/labels.js";
import { LEGEND_ABOVE, drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { selectToken, selectTokens } from "../core/selection.js";
import { cssColour, themeOf } from "../core/theme.js";
import { tokenSummary } from "../core/token-text.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox, progressBox } from "../core/widgets.js";
import { job as jobText, runs as text } from "../strings/compare.js";
/** @import { PartnerPayload } from "../core/payloads.js" */
/** @import { Child } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

const PAGE = 600;

const UNMATCHED = 255;

export class CompareRuns {
  /** @type {Run} */
  run;
  /** @type {any} */
  answer;
  /** @type {any} */
  partners;
  /** @type {Uint8Array<ArrayBuffer>} */
  tops;
  /** @type {(number | null)[]} */
  differences;
  /** @type {number} */
  shownLayer;
  /** @type {string} */
  theme;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.page = 0;
    this.message = el("div");
    this.choice = el("div");
    this.numbers = el("div", { hidden: true });
    this.requestedRun = addressOf("compare").get("with");
    /** @type {string | null} */
    this.other = null;
    this.words = el("div", { class: "fx-verdict" });
    this.chart = plotElement("fx-layers-agree", text.chartTitle);
    this.loss = plotElement("fx-loss", text.lossTitle);
    this.sides = { own: body("own"), other: body("other") };
    this.select = buttonOf(text.selectChanged, () => app.toggleSelection(this.changedSelection()), {
      "data-testid": "fx-select-changed",
    });
    this.earlier = buttonOf(text.earlier, () => this.turnPage(-1));
    this.later = buttonOf(text.later, () => this.turnPage(1));
    this.place = el("span", { class: "fx-muted" });
    /** @param {"own" | "other"} name */
    const side = (name) => el("section", {}, el("h5", { class: "fx-side-title" }, text[name]), this.sides[name]);
    this.results = el("div", { class: "fx-compare-results", hidden: true });
    this.results.append(
      this.words,
      section(text.chartTitle, text.chartHint, this.chart),
      section(
        text.textTitle,
        text.textHint,
        el(
          "div",
          { class: "fx-toolbar" },
          this.select,
          el("span", { class: "fx-pager" }, this.earlier, this.place, this.later),
        ),
        el("div", { class: "fx-pair" }, side("own"), side("other")),
      ),
      section(text.lossTitle, text.lossHint, this.loss),
    );
    this.node = el(
      "section",
      { class: "fx-compare-part", "data-testid": "fx-compare-runs", hidden: true },
      el("h3", { class: "fx-subtitle" }, text.title),
      el("p", { class: "fx-help" }, text.help),
      this.message,
      this.choice,
      this.numbers,
      this.results,
    );
    this.walks = Object.values(this.sides).map((side) => this.addListeners(side));
  }

  /** @param {HTMLElement} side */
  addListeners(side) {
    side.addEventListener("click", (event) => this.selectToken_(/** @type {HTMLElement} */ (event.target)));
    side.addEventListener("mouseover", (event) => this.showTooltip(/** @type {HTMLElement} */ (event.target)));
    side.addEventListener("mouseleave", () => this.app.tooltip.hide());
    return new TokenWalk(
      side,
      (token) => (token === null ? this.app.tooltip.hide() : this.showTooltip(token)),
      (token) => this.selectToken_(token),
    );
  }

  update() {
    const { run, root } = this.app;
    if (this.run !== run) {
      this.run = run;
      this.other = this.requestedRun === run.info.run_id ? null : this.requestedRun;
      this.requestedRun = this.answer = null;
      this.page = 0;
      this.results.hidden = this.numbers.hidden = true;
      this.findRuns();
      return;
    }
    const theme = themeOf(root);
    if (this.answer !== null && (this.shownLayer !== this.app.layerIndex || this.theme !== theme)) this.show();
  }

  async findRuns() {
    const { run } = this;
    this.choice.replaceChildren();
    this.message.replaceChildren(progressBox(jobText.loading));
    const answer = await this.app.request("compare_partners");
    if (run !== this.app.run) return;
    this.message.replaceChildren();
    if (answer.error !== undefined) this.message.replaceChildren(alertBox(answer.error, () => this.findRuns()));
    else this.showPartners(answer.runs);
  }

  /**
   * The run the address names is shown also when its text is another one; else the newest of the same tokens.
   * @param {PartnerPayload[]} runs
   */
  showPartners(runs) {
    this.partners = Object.fromEntries(
      runs.map((run) => [run.run_id, text.option({ ...run, date: format.date(run.created_at) })]),
    );
    if (this.other !== null && !(this.other in this.partners)) this.loadNumbers(this.other);
    else if (runs.length > 0) this.pick(this.other || runs[0].run_id);
    else this.message.replaceChildren(el("p", { class: "fx-muted", "data-testid": "fx-no-partner" }, text.none));
  }

  /** @param {string} other */
  pick(other) {
    this.drawChoice(this.partners, other);
    this.load(other);
  }

  /**
   * @param {Record<string, string>} options
   * @param {string} chosen
   */
  drawChoice(options, chosen) {
    const select = /** @type {HTMLSelectElement | null} */ (this.choice.querySelector("select"));
    if (select !== null && select.value === chosen) return;
    /** @param {string} other */
    const changed = (other) => (other in this.partners ? this.load(other) : other && this.loadNumbers(other));
    this.choice.replaceChildren(
      ...(Object.keys(options).length > 0 ? [dropdown(text.choose, options, chosen, changed)] : []),
    );
  }

  /** @param {string | null} other */
  showLoading(other) {
    this.other = other;
    this.message.replaceChildren(progressBox(jobText.loading));
    if (this.app.isOpen("compare") && !this.node.hidden) this.app.writeAddress();
  }

  /** @param {string} other */
  async loadNumbers(other) {
    const { run } = this;
    this.showLoading(other);
    const answer = await this.app.request("compare_numbers", { other });
    if (run !== this.app.run || other !== this.other) return;
    this.answer = null;
    this.results.hidden = this.numbers.hidden = true;
    if (answer.error !== undefined) {
      this.showLoading(null);
      this.message.replaceChildren(alertBox(text.notFound(answer.error)));
      this.drawChoice({ "": text.pick, ...this.partners }, "");
      return;
    }
    this.message.replaceChildren();
    this.drawChoice({ [other]: text.elsewhere(answer.second), ...this.partners }, other);
    this.numbers.replaceChildren(runNumbers(answer, this.app.tooltip));
    this.numbers.hidden = false;
  }

  /** @param {string} other */
  async load(other) {
    const { run } = this;
    this.showLoading(other);
    const answer = await this.app.request("compare_beside", { other });
    if (run !== this.app.run || other !== this.other) return;
    this.message.replaceChildren();
    if (answer.error !== undefined) return this.message.replaceChildren(alertBox(answer.error, () => this.load(other)));
    this.answer = answer;
    const bytes = atob(answer.top);
    this.tops = Uint8Array.from(bytes, (char) => char.charCodeAt(0));
    this.differences = answer.losses.map((value, pos) =>
      value === null || run.losses.focus[pos] === null ? null : value - run.losses.focus[pos],
    );
    this.results.hidden = false;
    this.numbers.hidden = true;
    this.show();
    return null;
  }

  // Layers both runs have, in this run's order; -1 where the other run has no router.
  get otherIndex() {
    return this.answer.layers.findIndex((layer) => layer.layer === this.run.layerIds[this.app.layerIndex]);
  }

  /** @param {number} pos */
  otherTop(pos) {
    return this.tops[this.otherIndex * this.run.numTokens + pos];
  }

  /** @param {number} pos */
  changed(pos) {
    return this.otherTop(pos) !== this.run.top(this.app.layerIndex, pos);
  }

  show() {
    this.shownLayer = this.app.layerIndex;
    this.theme = themeOf(this.app.root);
    this.showWords();
    this.showText();
    if (!this.app.isOpen("compare") || this.node.hidden) {
      this.shownLayer = -1; // drawn when the part is opened again
      return;
    }
    this.drawAgreement();
    this.drawLoss();
  }

  showWords() {
    const { run, answer } = this;
    const layer = answer.layers[this.otherIndex];
    const changed = this.otherIndex < 0 ? [] : this.changedPositions();
    this.select.disabled = changed.length === 0;
    const { mean, low, high, count } = answer.difference;
    const numbers = [mean, low, high].map((value) => format.signed(value, 3));
    const sentence = low <= 0 && high >= 0 ? text.same : mean > 0 ? text.worse : text.better;
    /** @param {"overlap" | "rand"} name */
    const average = (name) => answer.layers.reduce((sum, one) => sum + one[name], 0) / answer.layers.length;
    const parts = [sentence(.../** @type {[any, any, any]} */ (numbers), format.count(count))];
    if (layer)
      parts.push(
        changed.length === 0
          ? text.identical
          : text.agreement(
              format.count(changed.length),
              format.count(run.numTokens),
              layer.layer,
              format.percent(layer.overlap),
              format.decimal(layer.rand, 2),
            ),
      );
    if (answer.layers.length > 0)
      parts.push(
        text.mean(format.percent(average("overlap")), format.decimal(average("rand"), 2), answer.layers.length),
      );
    this.words.replaceChildren(
      ...parts.map((words, i) =>
        el("p", {}, words, i === 1 ? hintButton(this.app.tooltip, text.randSubject, text.randHint) : null),
      ),
    );
  }

  changedPositions() {
    return range(this.run.numTokens).filter((pos) => this.changed(pos));
  }

  changedSelection() {
    return selectTokens(this.changedPositions(), "row", text.changedLabel(this.run.layerIds[this.app.layerIndex]));
  }

  showText() {
    const { run } = this;
    const first = this.page * PAGE;
    const last = Math.min(run.numTokens, first + PAGE);
    this.earlier.disabled = first === 0;
    this.later.disabled = last === run.numTokens;
    this.place.textContent = text.page(format.count(first), format.count(last - 1), format.count(run.numTokens));
    const positions = range(last - first).map((i) => first + i);
    const missing = this.otherIndex < 0;
    this.fill(this.sides.own, positions, (pos) => run.top(this.app.layerIndex, pos), missing);
    this.fill(this.sides.other, positions, (pos) => this.otherTop(pos), missing);
    for (const walk of this.walks) walk.refresh();
    this.mark();
  }

  /**
   * @param {HTMLElement} body
   * @param {number[]} positions
   * @param {(pos: number) => number} topOf
   * @param {boolean} missing
   */
  fill(body, positions, topOf, missing) {
    body.replaceChildren(
      ...positions.map((pos) => {
        const top = missing ? UNMATCHED : topOf(pos);
        const token = el(
          "span",
          {
            class: "fx-pair-token",
            role: "option",
            tabindex: "-1",
            "aria-label": this.spoken(pos),
            "data-pos": pos,
            "data-shade": top === UNMATCHED ? "none" : `g${top}`,
          },
          this.run.pieces[pos],
        );
        if (!missing && this.changed(pos)) token.classList.add("fx-changed");
        return token;
      }),
    );
  }

  /** @param {number} by */
  turnPage(by) {
    this.page += by;
    this.showText();
  }

  mark() {
    const { selection } = this.app;
    for (const side of Object.values(this.sides)) {
      for (const token of side.querySelectorAll(".fx-pair-token")) {
        const selected = selection !== null && selection.has(Number(token.dataset.pos));
        token.toggleAttribute("data-selected", selected);
        token.setAttribute("aria-selected", String(selected));
      }
    }
  }

  selectionChanged() {
    if (this.answer === null) return;
    const { selection } = this.app;
    const first = selection === null ? null : selection.positions[0];
    const page = first === null ? this.page : Math.floor(first / PAGE);
    const onPage = selection === null || [...selection.positions].some((pos) => Math.floor(pos / PAGE) === this.page);
    if (!onPage && page !== this.page) {
      this.page = page;
      this.showText();
    } else this.mark();
    if (this.app.isOpen("compare") && !this.node.hidden) this.drawLoss();
  }

  /** @param {HTMLElement} token */
  selectToken_(token) {
    const { pos } = token.dataset;
    if (pos !== undefined) this.app.toggleSelection(selectToken(Number(pos)));
  }

  /** @param {HTMLElement} token */
  showTooltip(token) {
    const { pos } = token.dataset;
    if (pos === undefined || this.otherIndex < 0) return;
    this.app.tooltip.show(this.describe(Number(pos)), token.getBoundingClientRect());
  }

  /** @param {number} pos */
  otherName(pos) {
    const other = this.otherIndex < 0 ? UNMATCHED : this.otherTop(pos);
    return other === UNMATCHED ? text.unmatched : groupLabel(other);
  }

  /** @param {number} pos */
  spoken(pos) {
    return text.spoken(
      visibleToken(this.run.pieces[pos]),
      format.count(pos),
      groupLabel(this.run.top(this.app.layerIndex, pos)),
      this.otherName(pos),
    );
  }

  /** @param {number} pos */
  describe(pos) {
    const { run, answer, differences } = this;
    const groups = el(
      "div",
      {},
      text.token(format.count(pos), groupLabel(run.top(this.app.layerIndex, pos)), this.otherName(pos)),
    );
    if (differences[pos] === null) return tokenSummary(run, pos, groups);
    return tokenSummary(
      run,
      pos,
      groups,
      el(
        "div",
        {},
        text.losses(
          format.decimal(/** @type {number} */ (run.losses.focus[pos]), 2),
          format.decimal(answer.losses[pos], 2),
          format.signed(differences[pos], 2),
        ),
      ),
    );
  }

  drawAgreement() {
    const { app, answer } = this;
    const { root } = app;
    /** @param {"overlap" | "rand"} name @param {string} label @param {string} colour */
    const trace = (name, label, colour) => ({
      type: "scatter",
      mode: "lines+markers",
      name: label,
      x: answer.layers.map((one) => one.layer),
      y: answer.layers.map((one) => one[name]),
      hoverinfo: "none",
      line: { color: cssColour(root, colour) },
      customdata: answer.layers,
    });
    const here = this.run.layerIds[app.layerIndex];
    const layout = plotLayout(root, {
      legend: LEGEND_ABOVE,
      xaxis: plotAxis(root, text.layerAxis, { showgrid: false, zeroline: false }),
      yaxis: plotAxis(root, text.agreementAxis, {
        range: [Math.min(0, ...answer.layers.map((one) => one.rand)), 1.02],
        fixedrange: true,
      }),
      shapes: [
        {
          type: "line",
          x0: here,
          x1: here,
          yref: "paper",
          y0: 0,
          y1: 1,
          line: { color: cssColour(root, "border-strong"), dash: "dot", width: 1 },
        },
      ],
    });
    const data = [trace("overlap", text.overlap, "accent"), trace("rand", text.rand, "worse")];
    drawPlot(app, this.chart, data, layout, {
      hover: (point) =>
        el(
          "div",
          {},
          `${text.layerAxis} ${point.x}: ${text.overlap} ${format.percent(point.customdata.overlap)}, ${text.rand} ${format.decimal(point.customdata.rand, 2)}`,
        ),
      click: (point) => app.setLayer(this.run.layerIds.indexOf(point.x)),
    });
  }

  drawLoss() {
    const { app, differences } = this;
    const { root } = app;
    const data = [
      stems(differences, (value) => value > 0, text.worseTrace, cssColour(root, "worse")),
      stems(differences, (value) => value < 0, text.betterTrace, cssColour(root, "better")),
      ...selectedMarks(app, differences),
    ];
    const layout = plotLayout(root, {
      hovermode: "x",
      legend: LEGEND_ABOVE,
      xaxis: plotAxis(root, text.positionAxis, {
        showgrid: false,
        range: [0, differences.length],
        zeroline: false,
        tickformat: ",d",
      }),
      yaxis: plotAxis(root, text.lossAxis, { zeroline: true, fixedrange: true }),
    });
    drawPlot(app, this.loss, data, layout, {
      hover: (point) => this.describe(point.x),
      click: (point) => app.toggleSelection(selectToken(point.x)),
    });
  }
}

/** @param {"own" | "other"} side */
function body(side) {
  return el("div", {
    class: "fx-pair-text",
    role: "listbox",
    "aria-multiselectable": "true",
    "aria-label": text[side],
    "data-side": side,
  });
}

/**
 * @param {string} title
 * @param {string} help
 * @param {...Child} children
 */
function section(title, help, ...children) {
  return el("div", {}, el("h4", { class: "fx-subtitle" }, title), el("p", { class: "fx-help" }, help), ...children);
}
