// @ts-check
// The form of one change made to a run by hand, and changes in words.
import { range } from "../core/arrays.js";
import { el, newId } from "../core/dom.js";
import { dropdown, labelledField } from "../core/fields.js";
import { headCount } from "../core/heads.js";
import { groupLabel, oneLine } from "../core/labels.js";
import { whatIf as text } from "../strings/what-if.js";
/** @import { Run } from "../core/run.js" */
/** @import { App } from "../shell/app.js" */

/** @typedef {keyof typeof text.kinds} Kind */

const ALL = "all";

/** Which fields a kind of change has. @type {Record<Kind, string[]>} */
const FIELDS = {
  move: ["layer", "token", "group"],
  see: ["layer", "token", "key"],
  silence: ["layer", "group"],
  full: ["layer", "head"],
  k: ["layer", "head", "topK"],
  window: ["layer", "head", "window"],
};

export class ChangeForm {
  /** @type {Kind} */
  kind = "move";
  /** @type {Record<string, string>} */
  values = {};
  /** Whether a field was filled in since it last started anew. */
  isTouched = false;
  /** The layer that was open then. */
  layerIndex = -1;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.fields = el("div", { class: "fx-form" });
    this.hint = el("p", { class: "fx-help" });
    this.node = el("div", { class: "fx-change-form" }, this.fields, this.hint);
  }

  /** The change as the server reads it, such as move:12:163:B. */
  get change() {
    const { layer, token, key, group, head, topK, window } = this.values;
    const place = head === ALL ? layer : `${layer}:${head}`;
    /** @type {Record<Kind, string>} */
    const forms = {
      move: `move:${layer}:${token}:${group}`,
      see: `see:${layer}:${token}:${key}`,
      silence: `silence:${layer}:${group}`,
      full: `full:${place}`,
      k: `k:${place}=${topK}`,
      window: `window:${place}=${window}`,
    };
    return forms[this.kind];
  }

  /** Whether the kind of change names a token. */
  get asksForToken() {
    return FIELDS[this.kind].includes("token");
  }

  /** Another layer is open: a form that nobody has filled in starts from it. */
  layerOpened() {
    if (!this.isTouched && this.layerIndex !== this.app.layerIndex) this.reset();
  }

  /** Starts from what is open and selected. */
  reset() {
    const { run, layerIndex, selection } = this.app;
    this.isTouched = false;
    this.layerIndex = layerIndex;
    const positions = selection === null ? [] : [...selection.positions];
    const token = positions.length > 0 ? positions[positions.length - 1] : Math.floor(run.numTokens / 2);
    const key = positions.length > 1 ? positions[0] : Math.max(0, token - 1);
    const top = run.top(layerIndex, token);
    this.values = {
      layer: String(run.layerIds[layerIndex]),
      token: String(token),
      key: String(key),
      group: groupLabel(this.kind === "move" ? (top + 1) % run.numGroups : top),
      head: ALL,
      topK: String(Math.min(run.numGroups, run.info.config.top_k + 1)),
      window: String(2 * run.info.config.window),
    };
    this.draw();
  }

  draw() {
    const fields = FIELDS[this.kind].map((name) => this.field(name));
    const kind = dropdown(text.kindLabel, text.kinds, this.kind, (chosen) => {
      this.kind = chosen;
      this.reset();
    });
    this.fields.replaceChildren(kind, ...fields);
    this.hint.textContent = text.kindHints[this.kind];
  }

  /** @param {string} name */
  field(name) {
    const { run } = this.app;
    const choices = {
      layer: () => this.choices("layer", text.layer, this.layers(run)),
      group: () => this.choices("group", text.group, range(run.numGroups).map(groupLabel)),
      head: () => this.choices("head", text.head, [ALL, ...range(headsOf(run)).map(String)], text.allHeads),
      token: () => this.number("token", this.kind === "see" ? text.query : text.token, 0, run.numTokens - 1),
      key: () => this.number("key", text.key, 0, run.numTokens - 1),
      topK: () => this.number("topK", text.topK, 1, run.numGroups),
      window: () => this.number("window", text.windowField, 0, run.numTokens),
    };
    return choices[/** @type {keyof typeof choices} */ (name)]();
  }

  /** @param {Run} run */
  layers(run) {
    const layers = run.layerIds.map(String);
    return this.kind === "see" ? [ALL, ...layers] : layers;
  }

  /**
   * @param {string} name
   * @param {string} label
   * @param {string[]} values
   * @param {string} [all] what the choice of all is called
   */
  choices(name, label, values, all = text.allLayers) {
    if (!values.includes(this.values[name])) this.values[name] = values[values.length - 1];
    /** @type {HTMLSelectElement} */
    const select = el(
      "select",
      { id: newId("change"), onchange: () => this.fill(name, select.value) },
      values.map((value) =>
        el("option", { value, selected: value === this.values[name] }, value === ALL ? all : value),
      ),
    );
    return labelledField(label, select);
  }

  /**
   * @param {string} name
   * @param {string} label
   * @param {number} min
   * @param {number} max
   */
  number(name, label, min, max) {
    const input = el("input", { id: newId("change"), type: "number", min, max, step: 1, value: this.values[name] });
    input.addEventListener("input", () => this.fill(name, input.value));
    return labelledField(label, input);
  }

  /** @param {string} name @param {string} value */
  fill(name, value) {
    this.values[name] = value;
    this.isTouched = true;
  }
}

/**
 * Key-value heads of the run's layers; runs stored before 0.2 do not say. Where every layer tells query heads apart it
 * is their number, and the server refuses what is too large.
 * @param {Run} run
 */
const headsOf = (run) => Math.max(1, Math.min(...run.layers.map(({ parts }) => headCount(parts))));

/** A change as the server reads it. */
const FORM =
  /^(?:move:\d+:\d+:\w+|see:(?:\d+|all):\d+:\d+|silence:\d+:\w+|full:\d+(?::\d+)?|(?:k|window):\d+(?::\d+)?=\d+)$/;

/**
 * A change in words; what is none, or names a token the text does not have, as it is: the server says what is wrong.
 * @param {Run} run
 * @param {string} change
 */
export function changeWords(run, change) {
  const [kind, layer, second, third] = change.split(/[:=]/);
  const tokens = { move: [second], see: [second, third] }[kind] ?? [];
  if (!FORM.test(change) || tokens.some((pos) => Number(pos) >= run.numTokens)) return change;
  const words = text.describe;
  /** @param {string} pos */
  const piece = (pos) => oneLine(run.pieces[Number(pos)]).trim();
  if (kind === "move") return words.move(layer, second, piece(second), third);
  if (kind === "see") return words.see(layer, second, piece(second), third, piece(third));
  if (kind === "silence") return words.silence(layer, second);
  const [place, value] = change.slice(kind.length + 1).split("=");
  const [number, head = null] = place.split(":");
  const where = text.place(number, head);
  return kind === "full" ? words.full(where) : words[/** @type {"k" | "window"} */ (kind)](where, value);
}
