// @ts-check
// Questions about a run, each answered by a sentence with its interval and a figure beside its baselines.
import { chanceVerdict, statInterval, statName, statNumber } from "./numbers.js";
import { statRows } from "./rows.js";
import { qualitySentence, speedSentence } from "../compare/verdict.js";
import { buttonOf, el } from "../core/dom.js";
import { drawPlot, plotAxis, plotElement, plotLayout } from "../core/plot.js";
import { cssColour } from "../core/theme.js";
import { choiceOf } from "../core/widgets.js";
import { statistics as text } from "../strings/statistics.js";
/** @import { StatisticsPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { StatisticsView } from "./view.js" */
/** @import { StatisticRow } from "./numbers.js" */

const words = text.questions;

const EVEN = 1.5; // times the size of even groups that a largest group may have to be called nearly even

const ROW = 54; // pixels of a line of the figure

const FRAME = 84; // of its axis and title

/**
 * A number of the figure with the ends of its interval, where it has one.
 * @typedef {{ name: string, value: number, low?: number | null, high?: number | null, colour: string }} Mark
 */
/**
 * What answers a question.
 * @typedef {{ sentences: string[], axis: string, percent: boolean, marks: Mark[] }} Answered
 */
/** @typedef {keyof typeof words.ask} QuestionName */

/**
 * The statistics that answer questions: its name, and its schemes of categories, the best first.
 * @type {Partial<Record<QuestionName, [string, string[]]>>}
 */
const STATISTICS = {
  content: ["nmi", ["pos", "dep", "word"]],
  words: ["stability", [""]],
  even: ["dominance", [""]],
  far: ["distant_pairs_kept", [""]],
  attention: ["distant_mass_kept", [""]],
};

export class StatQuestions {
  /**
   * @param {App} app
   * @param {StatisticsView} view
   */
  constructor(app, view) {
    this.app = app;
    this.view = view;
    /** @type {QuestionName} */
    this.name = "worse";
    /** The run and question that are answered on the screen. @type {{ run: Run, name: QuestionName } | null} */
    this.answered = null;
    this.choice = choiceOf(words.label, words.ask, this.name, (name) => this.choose(name));
    this.choice.classList.add("fx-questions");
    this.answer = el("div", { class: "fx-verdict", "aria-live": "polite", "data-testid": "fx-answered" });
    this.figure = plotElement("fx-question-figure", words.figure, "fx-question-figure");
    this.more = el("div", { class: "fx-toolbar" });
    this.node = el(
      "section",
      { "data-testid": "fx-stat-questions" },
      el("p", { class: "fx-help" }, words.help),
      this.choice,
      this.answer,
      this.figure,
      this.more,
    );
  }

  /** @param {QuestionName} name */
  choose(name) {
    this.name = name;
    this.update();
  }

  // Answered anew whenever the part is drawn: more may have been measured meanwhile.
  async update() {
    const { name, app } = this;
    const { run } = app;
    if (this.answered?.run !== run || this.answered.name !== name) this.clear();
    const statistic = STATISTICS[name];
    if (statistic === undefined) this.view.stopWaiting();
    const found = statistic === undefined ? measured(run, name) : await this.fromStatistics(statistic);
    if (app.run !== run || this.name !== name || found === null) return;
    this.answered = { run, name };
    this.show(found);
  }

  clear() {
    this.answered = null;
    this.answer.replaceChildren();
    this.more.replaceChildren();
    this.figure.hidden = true;
  }

  /** @param {[string, string[]]} statistic */
  async fromStatistics([statistic, schemes]) {
    const answer = await this.view.answer("questions", "statistics");
    if (answer === null) return null;
    const rows = statRows(answer.run);
    const row = schemes
      .map((scheme) => rows.find((one) => one.statistic === statistic && one.category === scheme))
      .find((one) => one !== undefined && one.value !== null);
    return row === undefined ? notMeasured() : described(row, answer, this.name, this.app.run);
  }

  /** @param {Answered} found */
  show(found) {
    this.answer.replaceChildren(...found.sentences.map((sentence) => el("p", {}, sentence)));
    const inCompare = words.inCompare[this.name];
    this.more.replaceChildren(
      inCompare === undefined
        ? buttonOf(words.allStatistics, () => this.view.openPart("overview"))
        : buttonOf(inCompare, () => this.app.openView("compare")),
    );
    this.draw(found);
  }

  /** @param {Answered} found */
  draw({ marks, axis, percent }) {
    const { root } = this.app;
    this.figure.hidden = marks.length === 0;
    if (marks.length === 0) return;
    this.figure.style.height = `${FRAME + ROW * marks.length}px`;
    const data = marks.map((mark) => ({
      type: "scatter",
      mode: "markers",
      x: [mark.value],
      y: [mark.name],
      hoverinfo: "x+y",
      showlegend: false,
      marker: { size: 11, color: cssColour(root, mark.colour) },
      error_x: {
        type: "data",
        symmetric: false,
        visible: mark.low !== null && mark.low !== undefined,
        array: [(mark.high ?? mark.value) - mark.value],
        arrayminus: [mark.value - (mark.low ?? mark.value)],
        color: cssColour(root, mark.colour),
        thickness: 2,
        width: 6,
      },
    }));
    const layout = plotLayout(root, {
      xaxis: plotAxis(root, axis, { zeroline: true, tickformat: percent ? ".0%" : "" }),
      yaxis: plotAxis(root, "", { autorange: "reversed", type: "category", showgrid: false }),
      margin: { l: 8, r: 24, t: 24, b: 8 },
    });
    drawPlot(this.app, this.figure, data, layout, { hover: () => null });
  }
}

const notMeasured = () => ({ sentences: [words.notMeasured], axis: "", percent: false, marks: [] });

/**
 * What the run itself says of loss and speed.
 * @param {Run} run
 * @param {QuestionName} name
 * @returns {Answered}
 */
function measured(run, name) {
  if (name === "worse") {
    const { quality } = run;
    const sentence = qualitySentence(quality);
    if (!quality || sentence === null) return notMeasured();
    const { delta_mean: value, delta_low: low, delta_high: high } = quality;
    const marks = [
      { name: words.focus, value, low, high, colour: "accent" },
      { name: words.full, value: 0, colour: "muted" },
    ];
    return { sentences: [sentence, words.worseMeans], axis: words.worseAxis, percent: false, marks };
  }
  const [full, focus] = ["full", "focus"].map((mode) => run.timing(mode, "end_to_end"));
  if (!full || !focus) return notMeasured();
  const marks = [
    { name: words.focus, value: focus.median, low: focus.low, high: focus.high, colour: "accent" },
    { name: words.full, value: full.median, low: full.low, high: full.high, colour: "muted" },
  ];
  const repeats = words.repeats(Math.min(full.repeats, focus.repeats));
  return { sentences: [speedSentence(run), repeats], axis: words.fasterAxis, percent: false, marks };
}

/**
 * A statistic in a sentence: whether it can be told from its baselines, its interval, and what they are.
 * @param {StatisticRow} row
 * @param {StatisticsPayload} answer
 * @param {QuestionName} name
 * @param {Run} run
 * @returns {Answered}
 */
function described(row, answer, name, run) {
  const { decimals } = row;
  const value = /** @type {number} */ (row.value);
  const number = statNumber(decimals, value);
  const interval = statInterval(decimals, row.low, row.high) ?? words.noInterval;
  const called = statName(row);
  const even = name === "even" ? 1 / run.numGroups : null;
  const verdict =
    even === null ? chanceVerdict(row) : words.evenVerdict(statNumber(decimals, even), value < EVEN * even);
  const baselines = [
    row.shuffled === null || even !== null ? null : words.shuffled(statNumber(decimals, row.shuffled)),
    row.random === null ? null : words.random(statNumber(decimals, row.random)),
  ].filter((one) => one !== null);
  const missing = answer.missing.random ? words.randomMissing : null;
  const sentences = [
    `${verdict} ${words.states(called, number, interval)}${baselines.length > 0 ? `; ${baselines.join(", ")}` : ""}.`,
    ...(missing ? [missing] : []),
  ];
  /** @type {Mark[]} */
  const marks = [{ name: words.focus, value, low: row.low, high: row.high, colour: "accent" }];
  if (row.random !== null) {
    const [low, high] = [row.random_low, row.random_high];
    marks.push({ name: words.randomName, value: row.random, low, high, colour: "worse" });
  }
  if (even !== null) marks.push({ name: words.evenName, value: even, colour: "muted" });
  else if (row.shuffled !== null) {
    const [low, high] = [row.shuffled_low, row.shuffled_high];
    marks.push({ name: words.shuffledName, value: row.shuffled, low, high, colour: "muted" });
  }
  return { sentences, axis: row.title, percent: decimals === null, marks };
}
