// @ts-check
// The traces of the map's tokens, one for each colouring.
import { selectedPoints } from "./points.js";
import { range } from "../core/arrays.js";
import { groupColour } from "../core/colours.js";
import { namedLabel } from "../core/group-names.js";
import { scatterType } from "../core/plot.js";
import { cssColour, themeOf } from "../core/theme.js";
import { common } from "../strings/common.js";
import { map as text } from "../strings/map.js";
/** @import { MapPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Colouring } from "./view.js" */

const CROWDED = 3000;
const NORMAL = 0.75;
const CHOSEN = 0.95;
const DIMMED = 0.08;
const SYMBOLS = ["circle", "square", "triangle-up", "cross", "triangle-down", "x", "pentagon", "hexagon"];

/**
 * What the traces need of the view.
 * @typedef {{ app: App, map: MapPayload, colouring: Colouring, classes: Uint8Array, classNames: string[] }} TraceSource
 */

export class TokenTraces {
  /** @param {TraceSource} given */
  constructor({ app, map, colouring, classes, classNames }) {
    this.app = app;
    this.map = map;
    this.colouring = colouring;
    this.classes = classes;
    this.classNames = classNames;
  }

  /** One trace per group or word class, or one with a colour scale and one of the tokens without a value. */
  all() {
    const { app } = this;
    const { run, layerIndex } = app;
    const theme = themeOf(app.root);
    const parts = {
      group: () =>
        this.partition(
          run.numGroups,
          (pos) => run.top(layerIndex, pos),
          (group) => ({
            name: common.group(namedLabel(run, layerIndex, group)),
            color: groupColour(group, theme),
            symbol: SYMBOLS[group % SYMBOLS.length],
          }),
        ),
      class: () =>
        this.partition(
          this.classNames.length,
          (pos) => this.classes[pos],
          (index) => ({
            name: common.wordClasses[this.classNames[index]],
            color: cssColour(app.root, `class-${index}`),
            symbol: SYMBOLS[index % SYMBOLS.length],
          }),
        ),
      confidence: () =>
        this.scaled((pos) => run.confidence(layerIndex, pos), {
          cmin: 1 / run.numGroups,
          cmax: 1,
          colorscale: this.scale(["scale-low", "scale-middle", "scale-high"]),
          format: ".0%",
        }),
      entropy: () =>
        this.scaled((pos) => run.entropy(layerIndex, pos), {
          cmin: 0,
          cmax: Math.log(run.numGroups) || 1,
          colorscale: this.scale(["scale-low", "scale-middle", "scale-high"]),
          format: ".2f",
        }),
      path: () => this.pathTraces(run.trajectoryConsistency()),
      loss: () =>
        this.scaled((pos) => run.lossDifference(pos), {
          cmin: -1,
          cmax: 1,
          colorscale: this.scale(["better", "scale-low", "worse"]),
          format: ".1f",
        }),
      position: () =>
        this.scaled((pos) => pos, {
          cmin: 0,
          cmax: run.numTokens - 1,
          colorscale: this.scale(["scale-low", "scale-middle", "scale-high"]),
          format: ",d",
        }),
    };
    return parts[this.colouring]();
  }

  /** @param {Float32Array} consistency */
  pathTraces(consistency) {
    const values = this.map.positions.map((pos) => consistency[pos]);
    const [cmin, cmax] = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [1, 0]);
    return this.scaled((pos) => consistency[pos], {
      cmin,
      cmax,
      colorscale: this.scale(["scale-low", "scale-middle", "scale-high"]),
      format: ".0%",
    });
  }

  /**
   * @param {string[]} names
   * @returns {[number, string][]}
   */
  scale(names) {
    return names.map((name, i) => [i / (names.length - 1), cssColour(this.app.root, name)]);
  }

  /**
   * @param {number} count
   * @param {(pos: number) => number} partOf
   * @param {(part: number) => { name: string, color: string, symbol: string }} styleOf
   */
  partition(count, partOf, styleOf) {
    const members = range(count).map(() => /** @type {number[]} */ ([]));
    this.map.positions.forEach((pos, i) => members[partOf(pos)].push(i));
    return members.flatMap((points, part) => {
      const { name, color, symbol } = styleOf(part);
      return points.length > 0 ? [this.trace(points, name, { color, symbol })] : [];
    });
  }

  /**
   * @param {(pos: number) => number | null} value
   * @param {{ cmin: number, cmax: number, colorscale: [number, string][], format: string }} given
   */
  scaled(value, { cmin, cmax, colorscale, format: tickformat }) {
    const values = this.map.positions.map(value);
    const points = range(values.length).filter((i) => values[i] !== null);
    const without = range(values.length).filter((i) => values[i] === null);
    const title = {
      text: text.scales[/** @type {keyof typeof text.scales} */ (this.colouring)],
      side: "top",
      font: { size: 12 },
    };
    const colorbar = {
      orientation: "h",
      y: -0.02,
      yanchor: "top",
      thickness: 12,
      len: 0.6,
      tickformat,
      outlinewidth: 0,
      title,
    };
    const color = points.map((i) => values[i]);
    const scale = [
      {
        ...this.trace(points, text.scales[/** @type {keyof typeof text.scales} */ (this.colouring)], {
          color,
          cmin,
          cmax,
          colorscale,
          colorbar,
          showscale: true,
          line: { width: 1, color: cssColour(this.app.root, "border-strong") },
        }),
        showlegend: false,
      },
    ];
    return without.length === 0 ? scale : [...scale, this.withoutValue(without)];
  }

  /**
   * Of no colour of a scale, and of another form.
   * @param {number[]} points
   */
  withoutValue(points) {
    const marker = { color: cssColour(this.app.root, "muted"), symbol: "x" };
    return { ...this.trace(points, text.noValue, marker), showlegend: true };
  }

  /**
   * @param {number[]} points
   * @param {string} name
   * @param {object} marker
   */
  trace(points, name, marker) {
    const { map, app } = this;
    const tokens = points.map((i) => map.positions[i]);
    const size = map.positions.length > CROWDED ? 5 : 7;
    return {
      type: scatterType(),
      mode: "markers",
      name,
      x: points.map((i) => map.x[i]),
      y: points.map((i) => map.y[i]),
      meta: { tokens },
      hoverinfo: "none",
      selectedpoints: selectedPoints(tokens, app.selection),
      selected: { marker: { opacity: CHOSEN } },
      unselected: { marker: { opacity: DIMMED } },
      marker: { size, opacity: NORMAL, ...marker },
    };
  }
}

/**
 * How many tokens lie where: points that cover each other look like few.
 * @param {App} app
 * @param {MapPayload} map
 */
export const densityTrace = (app, map) => ({
  type: "histogram2dcontour",
  x: map.x,
  y: map.y,
  ncontours: 12,
  hoverinfo: "skip",
  showscale: false,
  showlegend: false,
  contours: { coloring: "lines" },
  colorscale: [
    [0, cssColour(app.root, "border")],
    [1, cssColour(app.root, "muted")],
  ],
  line: { width: 1 },
  meta: {},
});
