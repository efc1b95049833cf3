// @ts-check
// What full attention and Focus predict at one place, in the panel of a token.
import { el } from "../core/dom.js";
import { predictionList } from "../core/prediction-list.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox } from "../core/widgets.js";
import { reading } from "../strings/tokens.js";
/** @import { PredictionsPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

const text = reading.detail.predictions;

/** The part of the panel that shows predictions; those of the token shown last are kept. */
export class TokenPredictions {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.body = el("div", { "data-testid": "fx-predictions" });
    this.node = el(
      "div",
      { class: "fx-detail-part" },
      el("h3", {}, text.title, hintButton(app.tooltip, text.title, text.hint)),
      this.body,
    );
    /** @type {{ run: Run, pos: number } | null} */
    this.shown = null;
  }

  /** @param {number} pos */
  async show(pos) {
    const { run } = this.app;
    if (this.shown?.run === run && this.shown.pos === pos) return;
    const asked = { run, pos };
    this.shown = asked;
    this.body.replaceChildren(el("p", { class: "fx-muted" }, text.loading));
    const answer = await this.app.request("predictions", { token: pos });
    if (this.shown !== asked) return;
    if (answer.error === undefined) this.body.replaceChildren(...this.lists(run.pieces[pos], answer));
    else {
      this.shown = null;
      this.body.replaceChildren(alertBox(answer.error, () => this.show(pos)));
    }
  }

  /**
   * @param {string} piece
   * @param {PredictionsPayload} answer
   */
  lists(piece, { full, focus, changed }) {
    if (full === null || focus === null) return [el("p", { class: "fx-muted" }, text.none)];
    return [
      el("p", { class: "fx-muted" }, changed ? text.changed : text.same),
      el(
        "div",
        { class: "fx-predictions" },
        predictionList(text.full, piece, full),
        predictionList(text.focus, piece, focus),
      ),
    ];
  }
}
