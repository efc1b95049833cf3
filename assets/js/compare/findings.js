// @ts-check
// What the measured settings show, in sentences, and one of them for a tooltip.
import { clearlyAbove, hedge, interval, isClear, keyOf, nats, perplexityAt, reach, timeRatio } from "./cells.js";
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { settings as text } from "../strings/compare.js";
/** @import { GridCellPayload } from "../core/payloads.js" */

/**
 * @param {GridCellPayload | null} cell
 * @param {number} base
 */
export function describe(cell, base) {
  if (!cell)
    return [
      el("div", { class: "fx-tooltip-head" }, text.kinds.full),
      el("div", {}, text.fullPoint(format.perplexity(base))),
    ];
  const [low, high] = reach(cell).map((delta) => format.perplexity(perplexityAt(base, delta)));
  return [
    el("div", { class: "fx-tooltip-head" }, `${text.kinds[cell.kind]}, ${text.setting(cell)}`),
    el("div", {}, text.perplexities(format.perplexity(base), format.perplexity(perplexityAt(base, cell.delta_mean)))),
    cell.delta_low === null ? null : el("div", {}, text.perplexityRange(low, high)),
    el("div", {}, text.difference(nats(cell.delta_mean), interval(cell))),
    el("div", {}, text.pairs(format.percent(cell.retained_pairs, 1))),
    el("div", {}, text.times(format.ms(cell.attention_full), format.ms(cell.attention_focus), cell.repeats)),
  ];
}

/**
 * @param {GridCellPayload[]} cells
 * @param {Map<string, GridCellPayload>} byKey
 */
export function sentences(cells, byKey) {
  const focusCells = cells.filter((cell) => cell.kind === "focus");
  const last = cells[cells.length - 1];
  const lines = [];
  if (focusCells.length > 0) {
    /** @param {(cell: GridCellPayload) => number} value */
    const least = (value) => focusCells.reduce((best, cell) => (value(cell) < value(best) ? cell : best));
    const closest = least((cell) => Math.abs(cell.delta_mean));
    lines.push(
      text.best(
        text.setting(closest),
        nats(closest.delta_mean),
        interval(closest),
        format.percent(closest.retained_pairs),
        format.ratio(timeRatio(closest)),
        hedge(closest),
      ),
    );
    const faster = focusCells.filter((cell) => timeRatio(cell) < 1 && isClear(cell));
    const quickest = faster.reduce(
      (best, cell) => (best === null || timeRatio(cell) < timeRatio(best) ? cell : best),
      /** @type {GridCellPayload | null} */ (null),
    );
    lines.push(
      quickest
        ? text.quickest(
            text.setting(quickest),
            format.ratio(timeRatio(quickest)),
            nats(quickest.delta_mean),
            interval(quickest),
          )
        : text.noneFaster,
    );
    lines.push(
      text.wholePass(focusCells.filter((cell) => cell.total_focus < cell.total_full).length, focusCells.length),
    );
  }
  const pairs = focusCells.flatMap((cell) => {
    const random = byKey.get(keyOf("random", cell.top_k, cell.window_size));
    return random ? [{ cell, random }] : [];
  });
  if (pairs.length > 0) {
    const better = pairs.filter(({ cell, random }) => clearlyAbove(random, cell)).length;
    const worse = pairs.filter(({ cell, random }) => clearlyAbove(cell, random)).length;
    lines.push(text.againstRandom(better, worse, pairs.length));
  }
  /** @param {(cell: GridCellPayload) => string} value */
  const each = (value) => [...new Set(cells.map(value))].join(" / "); // parts of a grid may be measured on another day
  lines.push(
    text.measured(
      format.count(last.scored),
      each((cell) => String(cell.repeats)),
      each((cell) => cell.device),
      each((cell) => cell.dtype),
      each((cell) => text.threads(cell.threads)),
    ),
  );
  return lines;
}
