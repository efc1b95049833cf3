// @ts-check
// What a run shows, in plain sentences whose clauses lead to the view that shows it. Thresholds: docs/explorer.md.
import { nats } from "../compare/cells.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { interval95, sideOfZero } from "../core/interval.js";
import { near } from "../core/pair-rule.js";
import { selectTokens } from "../core/selection.js";
import { shell } from "../strings/shell.js";
/** @import { Run } from "../core/run.js" */
/** @import { App } from "./app.js" */

const text = shell.answer;

/** A layer whose largest group has more than this share of the tokens is called collapsed, unless K is 2. */
const COLLAPSED = 0.5;

/**
 * The fewest tokens that together lose as much as the whole text on balance, those hurt most first; none where the text
 * loses nothing.
 * @param {Run} run
 * @returns {number[]}
 */
export function tokensThatLose(run) {
  /** @type {[number, number][]} */
  const differences = [];
  for (let pos = 1; pos < run.numTokens; pos += 1) {
    const value = run.lossDifference(pos);
    if (value !== null) differences.push([value, pos]);
  }
  const whole = differences.reduce((sum, [value]) => sum + value, 0);
  if (whole <= 0) return [];
  differences.sort((a, b) => b[0] - a[0]);
  const positions = [];
  let sum = 0;
  for (const [value, pos] of differences) {
    positions.push(pos);
    sum += value;
    if (sum >= whole) break;
  }
  return positions;
}

/**
 * Tokens that stood in the text before, though not within the window: full attention alone sees all their earlier uses.
 * @param {Run} run
 * @returns {Set<number>}
 */
export function farRepeats(run) {
  const { window, window_growth: growth } = run.config;
  /** @type {Map<string, number>} */
  const latest = new Map();
  const repeats = new Set();
  run.pieces.forEach((piece, pos) => {
    const before = latest.get(piece);
    if (before !== undefined && pos - before > near(window, pos, growth)) repeats.add(pos);
    latest.set(piece, pos);
  });
  return /** @type {Set<number>} */ (repeats);
}

/**
 * How far the window reaches, in words; the last token's where it grows in this text.
 * @param {Run} run
 */
function windowWords({ config, numTokens }) {
  const last = near(config.window, numTokens - 1, config.window_growth);
  const words = format.count(config.window);
  return last === config.window ? text.within(words) : text.withinGrowing(words, format.count(last));
}

/**
 * Layers with a head that uses groups, of which one has most tokens.
 * @param {Run} run
 */
export const collapsedLayers = ({ layers, numGroups }) =>
  layers
    .filter(({ parts }) => parts.some(({ full, top_k: topK }) => !full && topK !== 0))
    .filter(({ dominance }) => numGroups > 2 && dominance > COLLAPSED)
    .map(({ layer }) => layer);

/** @param {App} app */
export function guidedAnswer(app) {
  const { run } = app;
  const lines = [first(app)];
  const { quality } = run;
  if (quality && sideOfZero(quality.delta_low, quality.delta_high) > 0) lines.push(...where(app));
  const collapsed = collapsedLayers(run);
  if (collapsed.length > 0)
    lines.push([
      link(text.collapsed(collapsed.length), () => {
        app.setLayer(run.layerIds.indexOf(collapsed[0]));
        app.openView("groups");
      }),
      text.collapsedMeans,
    ]);
  const attributes = { class: "fx-answer", "aria-label": text.label, "data-testid": "fx-answer" };
  return el("section", attributes, lines.map((line) => el("p", {}, line)));
}

/** @param {App} app */
function first(app) {
  const { run } = app;
  const kept = link(text.kept(format.percent(run.meanKept()), run.hasOtherLayers), () => app.openView("sparsity"));
  const { quality } = run;
  if (!quality) return [text.focus, kept, "."];
  const { delta_mean: mean, delta_low: low, delta_high: high } = quality;
  const side = sideOfZero(low, high);
  const open = low === null ? text.unknown : text.same;
  const verdict = side > 0 ? text.worse : side < 0 ? text.better : open;
  const words = text.numbers(nats(mean), interval95(low, high, nats));
  const numbers = el("span", { class: "fx-answer-numbers" }, words);
  return [text.focus, kept, text.and, link(verdict, () => app.openView("compare")), numbers, "."];
}

/**
 * Where a text loses.
 * @param {App} app
 */
function where(app) {
  const { run } = app;
  const positions = tokensThatLose(run);
  const far = farRepeats(run);
  const repeated = positions.filter((pos) => far.has(pos));
  const scored = run.numTokens - 1;
  /** @param {number[]} chosen @param {string} label */
  const show = (chosen, label) => {
    app.select(selectTokens([...chosen].sort((a, b) => a - b), "tokens", label));
    app.goToToken(chosen[0]);
  };
  const few = link(text.few(format.count(positions.length), format.count(scored)), () =>
    show(positions, text.fewLabel),
  );
  const line = [few, text.fewMeans(positions.length)];
  if (repeated.length > 0)
    line.push(
      text.ofThem,
      link(text.repeats(format.count(repeated.length)), () => show(repeated, text.repeatsLabel)),
      text.repeatsMeans(
        windowWords(run),
        format.percent(repeated.length / positions.length),
        format.percent(far.size / scored),
      ),
    );
  else line.push(".");
  return [line];
}

/**
 * A link and no button: its words break where the sentence does.
 * @param {string} words
 * @param {() => unknown} go
 */
function link(words, go) {
  /** @param {Event} event */
  const follow = (event) => {
    event.preventDefault();
    go();
  };
  return el("a", { class: "fx-answer-link", href: "#", onclick: follow }, words);
}
