// @ts-check
// The tokens most like the selected one, in words below the map and as lines on it.
import { el } from "../core/dom.js";
import { format } from "../core/format.js";
import { selectToken } from "../core/selection.js";
import { cssColour } from "../core/theme.js";
import { hintButton } from "../core/tooltip.js";
import { map as text } from "../strings/map.js";
/** @import { NeighboursPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { MapView } from "./view.js" */

export class Neighbours {
  /**
   * @param {App} app
   * @param {MapView} view
   */
  constructor(app, view) {
    this.app = app;
    this.view = view;
    this.node = el("div", { class: "fx-map-near", "data-testid": "fx-map-near", "aria-live": "polite" });
    /** @type {NeighboursPayload | null} */
    this.found = null;
    this.asked = "";
  }

  /** Asks for those of the selected token, where one alone is selected. */
  async update() {
    const { app, view } = this;
    const { run, selection } = app;
    const token = selection !== null && selection.size === 1 ? selection.positions[0] : null;
    const layer = view.scope === "all" ? null : run.layerIds[app.layerIndex];
    const asked = `${run.info.run_id} ${layer} ${token}`;
    if (asked === this.asked) return;
    this.asked = asked;
    this.clear();
    if (token === null) return;
    const answer = await app.request("map_neighbours", { layer, token });
    if (asked !== this.asked) return;
    if (app.run !== run || answer.error !== undefined) this.asked = ""; // nothing is shown of it: ask again next time
    if (app.run !== run) return;
    if (answer.error === undefined) this.show(answer, layer);
    else this.node.replaceChildren(el("p", { class: "fx-muted" }, answer.error));
  }

  clear() {
    this.node.replaceChildren();
    if (this.found === null) return;
    this.found = null;
    this.view.drawLines();
  }

  /**
   * @param {NeighboursPayload} found
   * @param {number | null} layer
   */
  show(found, layer) {
    const { run, tooltip } = this.app;
    this.found = found;
    const words = text.near(run.shown[found.token], found.token, layer, format.count(found.of));
    this.node.replaceChildren(
      el("p", { class: "fx-help" }, words, hintButton(tooltip, text.nearSubject, text.nearHint)),
      el(
        "ol",
        { class: "fx-map-near-list" },
        found.positions.map((pos, i) => el("li", {}, this.item(pos, found.similarity[i]))),
      ),
    );
    this.view.drawLines();
  }

  /**
   * @param {number} pos
   * @param {number} similarity
   */
  item(pos, similarity) {
    const { app } = this;
    return el(
      "button",
      {
        type: "button",
        class: "fx-button",
        "aria-label": text.nearLabel(app.run.shown[pos], pos, format.decimal(similarity, 2)),
        onclick: () => app.select(selectToken(pos)),
      },
      el("code", {}, app.run.shown[pos]),
      el("small", { class: "fx-muted" }, `${pos} · ${format.decimal(similarity, 2)}`),
    );
  }

  /** Plotly's lines from the token to each of them that is drawn. */
  lines() {
    const { found, view } = this;
    if (found === null || !view.map) return [];
    const places = new Map(view.map.positions.map((pos, i) => [pos, i]));
    const from = places.get(found.token);
    if (from === undefined) return [];
    const { x, y } = view.map;
    return found.positions.flatMap((pos) => {
      const to = places.get(pos);
      if (to === undefined) return [];
      const line = { color: cssColour(this.app.root, "accent"), width: 1.5 };
      return [{ type: "line", layer: "above", x0: x[from], y0: y[from], x1: x[to], y1: y[to], line }];
    });
  }
}
