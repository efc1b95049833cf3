// @ts-check
// The statistics of the whole run, what they are based on, and what can still be measured.
import { setAttentionState } from "../core/attention-state.js";
import { buttonOf, el, scrollRegion } from "../core/dom.js";
import { format } from "../core/format.js";
import { JobProgress, isLive } from "../core/job-progress.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox } from "../core/widgets.js";
import {
  byFamily,
  indistinctWords,
  isIndistinct,
  statCell,
  statInterval,
  statKey,
  statName,
  statNumber,
} from "./numbers.js";
import { statRows } from "./rows.js";
import { statistics as text } from "../strings/statistics.js";
/** @import { JobPayload, StatisticsPayload } from "../core/payloads.js" */
/** @import { Child, Details } from "../core/types.js" */
/** @import { Run } from "../core/run.js" */
/** @import { App } from "../shell/app.js" */
/** @import { StatisticsView } from "./view.js" */
/** @import { StatisticRow } from "./numbers.js" */

const words = text.overview;

const POLL_MS = 700;

/**
 * What the server puts between backticks is a command.
 * @param {string} line
 */
const withCode = (line) => line.split("`").map((part, i) => (i % 2 === 1 ? el("code", {}, part) : part));

export class StatOverview {
  /** @type {App} */
  app;
  /** @type {StatisticsView} */
  view;
  /** @type {StatisticsPayload | null} */
  answer;
  /** @type {Run | null} */
  shown;
  /** @type {boolean} */
  live;
  /** @type {number} */
  timer;

  /**
   * @param {App} app
   * @param {StatisticsView} view
   */
  constructor(app, view) {
    Object.assign(this, { app, view });
    this.basis = el("div");
    this.state = el("div", { "data-testid": "fx-stat-measure" });
    this.progress = new JobProgress(this.state, { label: words.measuring, stop: words.stop, role: "status" }, () =>
      this.request("statistics_stop"),
    );
    this.place = el("div");
    this.node = el("section", { "data-testid": "fx-stat-overview" }, this.basis, this.state, this.place);
  }

  async update() {
    const { view } = this;
    if (this.shown !== this.app.run) this.clear();
    const answer = await view.answer("overview", "statistics");
    if (answer === null) return;
    if (this.answer === answer) {
      if (this.live) this.watch();
      return;
    }
    this.answer = answer;
    this.shown = this.app.run;
    if (answer.about.attention_tokens) {
      view.attention = "done";
      setAttentionState(this.app.run, "done");
    }
    this.drawBasis(answer);
    this.drawTable(answer);
    this.take(answer.job);
  }

  clear() {
    this.answer = this.shown = null;
    this.live = false;
    for (const place of [this.basis, this.state, this.place]) place.replaceChildren();
  }

  /** @param {StatisticsPayload} given */
  drawBasis({ about, missing }) {
    const { units, unit } = about;
    const count = format.count(units);
    /** @param {string} label @param {Child | Child[]} value @param {string} [help] */
    const fact = (label, value, help) =>
      el(
        "div",
        { class: "fx-stat-fact" },
        el("dt", {}, label, help ? hintButton(this.app.tooltip, label, help) : null),
        el("dd", {}, value),
      );
    const facts = [
      fact(words.tokens, words.tokensValue(format.count(about.tokens), count, unit), words.tokensHelp(unit)),
      fact(words.tagger, about.tagger || words.noTagger, words.taggerHelp),
      fact(
        words.random,
        missing.random ? words.missing : words.randomValue(about.random_seed),
        text.baselines.random[1],
      ),
      fact(
        words.attention,
        about.attention_tokens ? words.attentionValue(format.count(about.attention_tokens)) : words.missing,
        words.measureHelp,
      ),
    ];
    const invited = Object.values(missing).some(Boolean); // the invitation says what is missing
    const notes = [
      ...(about.length === "enough" ? [] : [words.short[about.length](count, unit)]),
      ...(invited ? [] : about.notes),
    ];
    this.basis.replaceChildren(
      el("h3", { class: "fx-subtitle" }, words.basis),
      el("dl", { class: "fx-stat-facts" }, facts),
      ...(notes.length === 0
        ? []
        : [
            el(
              "div",
              { class: "fx-notes", role: "note" },
              el(
                "ul",
                {},
                notes.map((line) => el("li", {}, withCode(line))),
              ),
            ),
          ]),
    );
  }

  /**
   * What was measured, is being measured, or can be.
   * @param {JobPayload | null} job
   */
  take(job) {
    if (isLive(job)) return this.showRunning(job);
    this.live = false;
    return this.invite(job);
  }

  /** @param {JobPayload | null} job */
  invite(job) {
    const { missing, about } = /** @type {StatisticsPayload} */ (this.answer);
    const messages = [];
    if (job && job.state === "failed") messages.push(alertBox(job.message));
    else if (job && job.state === "stopped") messages.push(el("p", {}, words.stopped));
    else if (job && job.message) messages.push(alertBox(job.message));
    const first = missing.tags || missing.random;
    if (!first && !missing.attention) {
      this.state.replaceChildren(...messages);
      return;
    }
    const ofRandom = Boolean(about.attention_tokens); // this run's own is there
    const attentionHelp = ofRandom ? words.measureHelpRandom : words.measureHelp;
    const help = [...about.notes, ...(missing.attention ? [attentionHelp] : [])].map((line) =>
      el("li", {}, withCode(line)),
    );
    /** @param {string} label @param {boolean} main @param {boolean} attention */
    const button = (label, main, attention) =>
      buttonOf(label, () => this.measure(attention), { class: main ? "fx-button fx-main-button" : "fx-button" });
    const buttons = [
      first ? button(words.measure, true, false) : null,
      missing.attention
        ? button(ofRandom ? words.measureAttentionRandom : words.measureAttention, !first, true)
        : null,
    ];
    this.state.replaceChildren(
      el(
        "div",
        { class: "fx-invite" },
        messages,
        el("h4", { class: "fx-stat-heading" }, words.measureTitle),
        el("ul", { class: "fx-stat-missing" }, help),
        el("div", { class: "fx-stat-buttons" }, buttons.filter(Boolean)),
        el("p", { class: "fx-help" }, withCode(words.commandHint(this.app.run.info.run_id, missing.attention))),
      ),
    );
  }

  /** @param {boolean} attention */
  measure(attention) {
    this.showRunning({ stage: words.measuring, fraction: 0, state: "waiting" });
    this.request("statistics_measure", { attention });
  }

  /** @param {{ stage: string, fraction: number, state: string }} given */
  showRunning({ stage, fraction, state }) {
    this.live = true;
    this.progress.show(state === "stopping" ? words.stopping : stage, fraction);
    this.watch();
  }

  watch() {
    clearTimeout(this.timer);
    this.timer = setTimeout(
      () => this.app.isOpen("statistics") && this.shown === this.app.run && this.request("statistics_job"),
      POLL_MS,
    );
  }

  /**
   * @param {"statistics_measure" | "statistics_stop" | "statistics_job"} what
   * @param {Details} [details]
   */
  async request(what, details = {}) {
    const { run } = this.app;
    clearTimeout(this.timer);
    const answer = await this.app.request(what, details);
    if (this.app.run !== run || !this.app.isOpen("statistics")) return;
    if (answer.error !== undefined) {
      this.live = false;
      this.state.replaceChildren(alertBox(answer.error, () => this.request("statistics_job")));
      return;
    }
    const ended = this.live && answer.job && !isLive(answer.job);
    if (!ended) {
      this.take(answer.job);
      return;
    }
    // What is stored now changes every number; all parts ask again.
    this.live = false;
    this.view.forget();
    this.view.update();
    this.app.nameGroups(true); // names must exceed random centroids
  }

  /** @param {StatisticsPayload} given */
  drawTable({ run }) {
    const rows = statRows(run);
    const hints = text.baselines;
    const columns = [
      [words.columns.name],
      [words.columns.value, words.valueHint],
      hints.shuffled,
      hints.random,
      hints.difference,
      hints.window,
      [words.columns.n, words.nHint],
    ];
    const head = el(
      "tr",
      {},
      columns.map(([label, hint]) =>
        el("th", { scope: "col" }, label, hint ? hintButton(this.app.tooltip, label, hint) : null),
      ),
    );
    const bodies = [...byFamily(rows)].map(([title, familyRows]) => this.family(title, familyRows, columns.length));
    const table = el(
      "table",
      { class: "fx-table fx-stat-table", "aria-label": words.table, "data-testid": "fx-stat-run" },
      el("thead", {}, head),
      bodies,
    );
    this.place.replaceChildren(
      el("h3", { class: "fx-subtitle fx-stat-next" }, words.title),
      el("p", { class: "fx-help" }, words.explain, " ", words.caution),
      scrollRegion("fx-stat-scroll fx-stat-whole", words.table, table),
    );
  }

  /**
   * @param {string} title
   * @param {StatisticRow[]} rows
   * @param {number} width
   */
  family(title, rows, width) {
    return el(
      "tbody",
      {},
      el("tr", { class: "fx-stat-family" }, el("th", { colspan: width, scope: "rowgroup" }, title)),
      rows.map((row) => this.line(row)),
    );
  }

  /** @param {StatisticRow} row */
  line(row) {
    const { decimals } = row;
    const warning = indistinctWords(row);
    const name = statName(row);
    /** @param {[(number | null)?, (number | null)?, (number | null)?, boolean?]} numbers */
    const cell = (...numbers) => el("td", {}, statCell(decimals, ...numbers));
    const button = buttonOf(name, () => this.open(row), { class: "fx-stat-open" });
    const value = el(
      "td",
      {},
      el("strong", { class: "fx-stat-value" }, statNumber(decimals, row.value)),
      el("span", { class: "fx-interval" }, statInterval(decimals, row.low, row.high) || text.noInterval),
      warning ? el("span", { class: "fx-stat-indistinct" }, warning) : null,
    );
    return el(
      "tr",
      { class: isIndistinct(row) ? "fx-stat-pale" : null, "data-stat": statKey(row) },
      el(
        "th",
        { scope: "row", class: "fx-stat-name" },
        el("span", { class: "fx-stat-named" }, button, hintButton(this.app.tooltip, name, row.meaning)),
      ),
      value,
      cell(row.shuffled, row.shuffled_low, row.shuffled_high),
      cell(row.random, row.random_low, row.random_high),
      cell(row.difference, row.difference_low, row.difference_high, true),
      el("td", {}, statNumber(decimals, row.window_only)),
      el(
        "td",
        {},
        format.count(row.count),
        el("span", { class: "fx-interval" }, row.denominator.replace(", mean over layers", "")),
      ),
    );
  }

  /**
   * Its course over the layers.
   * @param {StatisticRow} row
   */
  open(row) {
    this.view.parts.layers.choose(statKey(row));
    this.view.openPart("layers");
  }
}
