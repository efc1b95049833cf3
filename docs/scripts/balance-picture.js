// @ts-check
// Sinkhorn's balancing as a table that a button takes a step further.
import { buttonOf, el, setText } from "../../assets/js/core/dom.js";
import { format } from "../../assets/js/core/format.js";
import { groupLabel } from "../../assets/js/core/labels.js";
import {
  columnSums,
  columnTarget,
  firstGroup,
  largestGroup,
  nextBalance,
  rowSums,
  startBalance,
} from "./balance.js";

const ROUNDS = 10;

export class BalancePicture {
  /**
   * @param {HTMLElement} root
   * @param {{ pieces: string[], scores: number[][] }} example
   */
  constructor(root, example) {
    this.example = example;
    this.now = startBalance(example.scores);
    this.reading = el("p", { class: "picture-reading", "aria-live": "polite" });
    this.place = el("div", { class: "picture-side" });
    const buttons = [
      buttonOf("Next step", () => this.go(1)),
      buttonOf(`${ROUNDS} rounds`, () => this.go(2 * ROUNDS)),
      buttonOf("Start over", () => this.go(0)),
    ];
    root.replaceChildren(el("div", { class: "picture-buttons" }, buttons), this.place, this.reading);
    this.draw();
  }

  /** @param {number} steps 0 starts over */
  go(steps) {
    if (steps === 0) this.now = startBalance(this.example.scores);
    for (let step = 0; step < steps; step += 1) this.now = nextBalance(this.now);
    this.draw();
  }

  draw() {
    const { plan, steps } = this.now;
    const [rows, columns] = [rowSums(plan), columnSums(plan)];
    const divided = steps === 0 ? "" : steps % 2 === 1 ? "columns" : "rows";
    const sumClass = (/** @type {string} */ what) => (divided === what ? "picture-sum picture-new" : "picture-sum");
    const letters = plan[0].map((_, group) => el("th", {}, groupLabel(group)));
    const head = el("tr", {}, el("th", {}, "token"), letters, el("th", {}, "sum"));
    const body = plan.map((row, token) =>
      el(
        "tr",
        {},
        el("th", {}, this.example.pieces[token]),
        row.map((value, group) => cell(value, value / Math.max(...row), firstGroup(row) === group)),
        el("td", { class: sumClass("rows") }, format.decimal(rows[token], 2)),
      ),
    );
    const sums = columns.map((value) => el("td", { class: sumClass("columns") }, format.decimal(value, 2)));
    const foot = el("tr", {}, el("th", {}, "sum"), sums, el("td", {}));
    const table = el("table", { class: "picture-balance" }, el("thead", {}, head), el("tbody", {}, body, foot));
    this.place.replaceChildren(table);
    setText(this.reading, `${this.sentence(divided)} ${this.largest()}`);
  }

  /** @param {string} divided */
  sentence(divided) {
    const { plan, steps } = this.now;
    const target = format.decimal(columnTarget(plan), 0);
    const round = Math.ceil(steps / 2);
    if (divided === "")
      return `Before any step: e to the power of each score. Every row shall add up to 1, every column to ${target}.`;
    if (divided === "columns") return `Round ${round}: every column was divided by its sum, times ${target}.`;
    const worst = format.decimal(this.worst(), 2);
    return `Round ${round}: every row was divided by its sum. Columns are off by ${worst} at most.`;
  }

  worst() {
    const target = columnTarget(this.now.plan);
    return Math.max(...columnSums(this.now.plan).map((value) => Math.abs(value - target)));
  }

  largest() {
    return `The largest group has ${format.percent(largestGroup(this.now.plan))} of the tokens.`;
  }
}

/**
 * @param {number} value
 * @param {number} part of the row's largest value
 * @param {boolean} first whether the group is the token's most probable one
 */
const cell = (value, part, first) =>
  el(
    "td",
    { class: first ? "picture-first" : null, style: `--part: ${Math.round(part * 100)}%` },
    format.decimal(value, 2),
  );
