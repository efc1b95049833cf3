// @ts-check
// The panel of one token: what it may attend to and why, what may attend to it, and its groups in every layer.
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { namedLabel, tokenChips } from "../core/group-names.js";
import { HeadChoice } from "../core/head-choice.js";
import { groupLabel } from "../core/labels.js";
import { KEPT_CAUSES } from "../core/pair-rule.js";
import { selectTokens } from "../core/selection.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox, progressBox } from "../core/widgets.js";
import { common } from "../strings/common.js";
import { causeHints } from "../sparsity/causes.js";
import { sparsity as sparsityText } from "../strings/sparsity.js";
import { reading as readingText } from "../strings/tokens.js";
import { lossWords } from "./details.js";
import { TokenAttention } from "./attention.js";
import { TokenPredictions } from "./predictions.js";
/** @import { Run } from "../core/run.js" */
/** @import { Cause } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Links } from "./links.js" */

const text = readingText.detail;

const SHOWN_RANGES = 300;

export class TokenPanel {
  /**
   * @param {App} app
   * @param {() => unknown} closed
   */
  constructor(app, closed) {
    this.app = app;
    this.heads = new HeadChoice(app);
    this.predictions = new TokenPredictions(app);
    this.attention = new TokenAttention(app);
    this.closed = closed;
    this.node = el("section", {
      class: "fx-detail",
      "aria-label": text.title,
      "data-testid": "fx-detail",
      hidden: true,
    });
  }

  hide() {
    this.node.hidden = true;
    this.node.replaceChildren();
  }

  /**
   * `links` is null while the layer's membership is on its way; `problem` says why it will not come.
   * @param {number} pos
   * @param {Links | null} links
   * @param {string | null} [problem]
   */
  show(pos, links, problem = null) {
    const focused = this.node.contains(document.activeElement)
      ? /** @type {HTMLElement} */ (document.activeElement).dataset.key
      : null;
    const { run, layerIndex } = this.app;
    this.node.hidden = false;
    this.node.replaceChildren(
      this.head(pos),
      ...this.links(links, problem),
      this.facts(run, layerIndex, pos),
      this.attention.node,
      this.predictions.node,
      this.path(run, layerIndex, pos),
    );
    this.predictions.show(pos);
    this.attention.show(pos);
    if (focused) this.node.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
  }

  /** @param {number} pos */
  head(pos) {
    const { run, layerIndex } = this.app;
    return el(
      "header",
      { class: "fx-detail-head" },
      el("code", {}, run.tokenLabel(pos)),
      el(
        "span",
        { class: "fx-muted" },
        text.position(format.count(pos), format.count(run.numTokens - 1), run.layerIds[layerIndex]),
      ),
      buttonOf("×", this.closed, { class: "fx-step", "data-key": "close", "aria-label": text.close }),
    );
  }

  /**
   * @param {Links | null} links
   * @param {string | null} problem
   */
  links(links, problem) {
    if (problem !== null) return [alertBox(readingText.layerFailed(problem), () => this.app.loadLayer())];
    if (links === null) return [progressBox(readingText.loadingLayer)];
    const { pos } = links;
    const later = links.numTokens - pos - 1;
    const back = links.back();
    const forward = links.forward();
    /** @param {number} count @param {number} all */
    const share = (count, all) => format.percent(all === 0 ? 0 : count / all, 1);
    this.heads.update();
    return [
      this.heads.node,
      this.direction(
        "back",
        text.back,
        text.backHint,
        text.backTotal(format.count(back.length), format.count(pos + 1), share(back.length, pos + 1)),
        links,
        back,
      ),
      this.direction(
        "forward",
        text.forward,
        text.forwardHint,
        text.forwardTotal(format.count(forward.length), format.count(later), share(forward.length, later)),
        links,
        forward,
      ),
      el("p", { class: "fx-help" }, text.marks),
    ];
  }

  /**
   * @param {"back" | "forward"} way
   * @param {string} title
   * @param {string} hint
   * @param {string} total
   * @param {Links} links
   * @param {number[]} positions
   */
  direction(way, title, hint, total, links, positions) {
    const { app } = this;
    const layer = app.run.layerIds[links.layerIndex];
    const label = (way === "back" ? text.selectedBack : text.selectedForward)(format.count(links.pos), layer);
    const select = () => app.select(selectTokens(positions, "tokens", label));
    const hints = causeHints(app.run, links.layerIndex, app.part);
    return el(
      "div",
      { class: "fx-detail-part", "data-way": way },
      el("h3", {}, title, hintButton(app.tooltip, title, hint)),
      el("p", { class: "fx-muted" }, total),
      el(
        "ul",
        { class: "fx-link-list" },
        KEPT_CAUSES.map((cause) => causeRow(way, cause, links[way](cause), hints[cause])),
      ),
      positions.length > 1
        ? buttonOf(text.select, select, { class: "fx-button fx-small", "data-key": `select-${way}` })
        : null,
    );
  }

  /**
   * @param {Run} run
   * @param {number} layerIndex
   * @param {number} pos
   */
  facts(run, layerIndex, pos) {
    return el(
      "div",
      { class: "fx-detail-part" },
      el(
        "div",
        { class: "fx-tooltip-row" },
        el("span", { class: "fx-muted" }, text.groups),
        el(
          "span",
          {},
          tokenChips(run, layerIndex, pos, this.app.part),
        ),
      ),
      el(
        "div",
        { class: "fx-tooltip-row" },
        el(
          "span",
          { class: "fx-muted" },
          text.loss,
          hintButton(this.app.tooltip, common.nats.subject, common.nats.hint),
        ),
        lossWords(run, pos),
      ),
    );
  }

  /**
   * @param {Run} run
   * @param {number} layerIndex
   * @param {number} pos
   */
  path(run, layerIndex, pos) {
    const consistency = run.trajectoryConsistency();
    const below = consistency.reduce((count, value) => count + (value < consistency[pos] ? 1 : 0), 0);
    const strip = el(
      "div",
      { class: "fx-path", role: "group", "aria-label": text.path, onkeydown: (event) => this.pathKey(event) },
      range(run.numLayers).map((index) => this.pathCell(run, layerIndex, index, pos)),
    );
    return el(
      "div",
      { class: "fx-detail-part" },
      el("h3", {}, text.path, hintButton(this.app.tooltip, text.path, text.pathHint)),
      strip,
      run.numLayers > 1
        ? el(
            "p",
            { class: "fx-muted" },
            text.consistency(format.percent(consistency[pos]), format.percent(below / run.numTokens)),
          )
        : null,
    );
  }

  /**
   * @param {Run} run
   * @param {number} layerIndex
   * @param {number} index
   * @param {number} pos
   */
  pathCell(run, layerIndex, index, pos) {
    const group = run.top(index, pos);
    const { share } = run.groups[index][group];
    const words = text.pathCell(run.layerIds[index], namedLabel(run, index, group), format.percent(share));
    const current = index === layerIndex;
    return buttonOf(groupLabel(group), () => this.app.setLayer(index), {
      class: "fx-path-cell",
      "data-shade": `g${group}`,
      "data-index": index,
      "data-key": `path-${index}`,
      "aria-label": words,
      title: words,
      "aria-current": current ? "true" : null,
      tabindex: current ? "0" : "-1",
    });
  }

  /**
   * One tab stop for the strip; the arrow keys go from layer to layer.
   * @param {KeyboardEvent} event
   */
  pathKey(event) {
    const at = this.app.layerIndex;
    const last = this.app.run.numLayers - 1;
    /** @type {Record<string, number>} */
    const targets = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last };
    const target = targets[event.key];
    if (target === undefined || target < 0 || target > last) return;
    event.preventDefault();
    this.app.setLayer(target);
    this.node.querySelector(`[data-key="path-${target}"]`)?.focus({ preventScroll: true });
  }
}

/**
 * @param {"back" | "forward"} way
 * @param {Cause} cause
 * @param {number[]} positions
 * @param {string} hint
 */
function causeRow(way, cause, positions, hint) {
  const mark = el(
    "span",
    { class: "fx-link-sample", "data-link": cause, "data-way": way, "aria-hidden": "true" },
    "ab",
  );
  const label = el("span", { class: "fx-link-label", title: hint }, mark, sparsityText.causes[cause]);
  const count = el("span", { class: "fx-number" }, format.count(positions.length));
  if (positions.length === 0)
    return el("li", { "data-cause": cause }, el("div", { class: "fx-link-row fx-link-none" }, label, count));
  const list = el("p", {
    class: "fx-link-ranges",
    tabindex: "0",
    role: "region",
    "aria-label": `${sparsityText.causes[cause]}: ${text.ranges}`,
  });
  const details = el(
    "details",
    {},
    el(
      "summary",
      {
        class: "fx-link-row",
        "aria-label": `${sparsityText.causes[cause]}, ${format.count(positions.length)}. ${text.ranges}`,
      },
      label,
      count,
    ),
    list,
  );
  details.addEventListener("toggle", () => details.open && list.replaceChildren(rangeWords(positions)));
  return el("li", { "data-cause": cause }, details);
}

/** @param {number[]} positions */
function rangeWords(positions) {
  const ranges = selectTokens(positions, "tokens", "").ranges();
  const shown = ranges
    .slice(0, SHOWN_RANGES)
    .map(([first, last]) => (first === last ? format.count(first) : `${format.count(first)}–${format.count(last)}`));
  const rest = ranges.length - shown.length;
  return shown.join(", ") + (rest > 0 ? text.more(format.count(rest)) : "");
}
