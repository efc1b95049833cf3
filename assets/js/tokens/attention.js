// @ts-check
// What a token attends to under full attention and under Focus: arcs to its strongest keys, by layer and head.
import { ArcText, excerpt } from "../core/arc-text.js";
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { dropdown } from "../core/fields.js";
import { format } from "../core/format.js";
import { JobProgress, isLive } from "../core/job-progress.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox, choiceOf, tableOf } from "../core/widgets.js";
import { attention as text } from "../strings/attention.js";
import { AttentionRows } from "./attention-rows.js";
/** @import { AttentionOfTokenPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { KeyAttention } from "./attention-rows.js" */

const POLL_MS = 300;

const SHOWN = 8; // arcs, and rows of the table

const LEAST = 0.005; // less attention than this draws no arc

const KEPT_TOKENS = 16; // whose attention is kept in the page

export class TokenAttention {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** By run and token. @type {Map<string, AttentionRows[]>} */
    this.known = new Map();
    this.on = false;
    /** @type {number | null} */
    this.head = null;
    /** @type {"full" | "focus"} */
    this.side = "full";
    this.pos = -1;
    /** @type {import("../core/run.js").Run | null} */
    this.shownRun = null;
    this.asked = 0;
    this.body = el("div", { "data-testid": "fx-token-attention" });
    this.progress = new JobProgress(this.body, { label: text.progress, stop: text.stop, role: "status" }, () =>
      this.stop(),
    );
    this.arcs = new ArcText({ label: text.figure, go: text.go }, (pos) => app.goToToken(pos));
    this.numHeads = 0;
    this.heads = el("div", {});
    this.kept = el("p", {});
    this.table = el("div", {});
    this.result = el(
      "div",
      {},
      el(
        "div",
        { class: "fx-token-attention-choices" },
        this.heads,
        choiceOf(text.side, text.sides, this.side, (chosen) => this.choose(chosen)),
      ),
      this.arcs.node,
      this.kept,
      this.table,
      el("p", { class: "fx-help" }, text.note),
    );
    this.node = el(
      "div",
      { class: "fx-detail-part" },
      el("h3", {}, text.title, hintButton(app.tooltip, text.title, text.hint)),
      this.body,
    );
  }

  key() {
    return `${this.app.run.info.run_id}/${this.pos}`;
  }

  /** @param {number} pos */
  show(pos) {
    const moved = this.pos !== pos || this.shownRun !== this.app.run;
    this.pos = pos;
    this.shownRun = this.app.run;
    if (this.known.has(this.key())) {
      this.asked += 1; // an answer still on its way is of another token
      this.draw();
    } else if (this.on && moved) this.request("token_attention_start");
    else if (moved) this.invite();
  }

  invite() {
    this.asked += 1;
    this.body.replaceChildren(
      el("p", { class: "fx-help" }, text.invite),
      buttonOf(text.show, () => this.start(), { class: "fx-button fx-small", "data-key": "attention" }),
    );
  }

  start() {
    this.on = true;
    return this.request("token_attention_start");
  }

  stop() {
    this.on = false;
    return this.request("token_attention_stop");
  }

  /**
   * One question, and again while the model works.
   * @param {"token_attention" | "token_attention_start" | "token_attention_stop"} what
   */
  async request(what) {
    const asked = (this.asked += 1);
    const { pos } = this;
    const { run } = this.app;
    const current = () => asked === this.asked && run === this.app.run;
    if (what === "token_attention_start") this.progress.show(text.waiting, 0);
    const answer = await this.app.request(what, { token: pos });
    if (!current()) return;
    if (answer.error !== undefined) return this.fail(answer.error);
    if (answer.layers !== null) return this.take(answer);
    const { job } = answer;
    if (job?.state === "failed") return this.fail(job.message);
    if (job === null || !isLive(job)) return this.invite();
    this.progress.show(job.stage, job.fraction);
    setTimeout(() => current() && this.request("token_attention"), POLL_MS);
    return undefined;
  }

  /** @param {string} problem */
  fail(problem) {
    this.on = false;
    this.body.replaceChildren(alertBox(problem, () => this.start()));
  }

  /** @param {AttentionOfTokenPayload} answer */
  take(answer) {
    const layers = /** @type {NonNullable<AttentionOfTokenPayload["layers"]>} */ (answer.layers);
    const { layerIds } = this.app.run;
    const rows = layers
      .toSorted((a, b) => layerIds.indexOf(a.layer) - layerIds.indexOf(b.layer))
      .map((layer) => new AttentionRows(layer));
    this.known.set(this.key(), rows);
    if (this.known.size > KEPT_TOKENS) this.known.delete(/** @type {string} */ (this.known.keys().next().value));
    this.draw();
  }

  draw() {
    const { run, layerIndex } = this.app;
    const layers = /** @type {AttentionRows[]} */ (this.known.get(this.key()));
    const rows = layers[layerIndex];
    if (this.head !== null && this.head >= rows.numHeads) this.head = null;
    const { side } = this;
    const keys = rows
      .of(this.head)
      .sort((a, b) => b[side] - a[side])
      .slice(0, SHOWN);
    const arcs = keys
      .filter((one) => one.key !== this.pos && one[side] >= LEAST)
      .map((one) => ({ from: this.pos, to: one.key, gain: one[side], dropped: one.kept === 0 }));
    this.offerHeads(rows.numHeads);
    this.kept.textContent = text.kept(run.layerIds[layerIndex], format.percent(rows.keptOf(this.head)), this.head);
    this.table.replaceChildren(this.keyTable(keys));
    if (this.result.parentNode !== this.body) this.body.replaceChildren(this.result);
    this.arcs.show(excerpt(run, [this.pos, ...arcs.map(({ to }) => to)]), this.pos, arcs);
  }

  /**
   * Kept while their number stays, so that the keyboard stays on it.
   * @param {number} numHeads
   */
  offerHeads(numHeads) {
    if (numHeads === this.numHeads) return;
    this.numHeads = numHeads;
    const options = Object.fromEntries([["all", text.all], ...range(numHeads).map((head) => [head, text.head(head)])]);
    const chosen = this.head === null ? "all" : String(this.head);
    this.heads.replaceChildren(
      dropdown(text.heads, options, chosen, (value) => {
        this.head = value === "all" ? null : Number(value);
        this.draw();
      }),
    );
  }

  /** @param {"full" | "focus"} side */
  choose(side) {
    this.side = side;
    this.draw();
  }

  /** @param {KeyAttention[]} keys */
  keyTable(keys) {
    const { run } = this.app;
    const rows = keys.map((one) => [
      el(
        "span",
        {},
        buttonOf(run.tokenLabel(one.key), () => this.app.goToToken(one.key), {
          class: "fx-token-attention-key",
          title: text.go(one.key),
        }),
        el("span", { class: "fx-muted" }, ` ${format.count(one.key)}`),
      ),
      format.percent(one.full, 1),
      one.kept === 0 ? el("span", { class: "fx-token-attention-dropped" }, text.dropped) : format.percent(one.focus, 1),
    ]);
    return tableOf([text.token, text.sides.full, text.sides.focus], rows, {
      "aria-label": text.table,
      "data-testid": "fx-token-attention-table",
    });
  }
}
