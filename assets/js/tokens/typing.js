// @ts-check
// A text whose tokens take their groups' colours while one types it.
import { decodeBase64 } from "../core/bytes.js";
import { shownPieces } from "../core/characters.js";
import { el, newId } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupLabel, visibleToken } from "../core/labels.js";
import { alertBox } from "../core/widgets.js";
import { typing as text } from "../strings/tokens.js";
/** @import { LiveTextPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */

export class Typing {
  /** @type {Run} */
  run;
  /** What was answered last. @type {LiveTextPayload | null} */
  answer = null;
  /** Whether a question is on its way; the text as it then is follows it. */
  asking = false;
  /** The text that was asked about last. @type {string | null} */
  asked = null;
  session = newId("typing") + String(Math.random()).slice(2);

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.field = el("textarea", {
      id: newId("typing"),
      rows: 3,
      dir: "auto",
      spellcheck: "false",
      placeholder: text.placeholder,
    });
    this.field.addEventListener("input", () => this.ask());
    this.out = el("p", { class: "fx-typed", dir: "auto", "aria-live": "off", "data-testid": "fx-typed" });
    this.next = el("p", { class: "fx-help", "data-testid": "fx-typed-next" });
    this.status = el("p", { class: "fx-help", role: "status" });
    this.node = el(
      "details",
      { class: "fx-details fx-typing", "data-testid": "fx-typing" },
      el("summary", {}, text.title),
      el("label", { class: "fx-help", for: this.field.id }, text.help),
      this.field,
      this.out,
      this.next,
      this.status,
    );
    this.node.addEventListener("toggle", () => this.askAgain());
  }

  /** Another run has other groups, another layer shows other ones of the same answer. */
  update() {
    if (this.run !== this.app.run) {
      this.run = this.app.run;
      this.asked = null;
      this.answer = null;
      for (const node of [this.out, this.next, this.status]) node.replaceChildren();
      this.askAgain();
    }
    this.draw();
  }

  /** What was typed for another run is asked about where it can be seen. */
  askAgain() {
    if (/** @type {HTMLDetailsElement} */ (this.node).open && this.field.value !== "") this.ask();
  }

  async ask() {
    if (this.asking || this.asked === this.field.value) return;
    this.asking = true;
    const { run } = this.app;
    this.asked = this.field.value;
    if (this.answer === null) this.status.replaceChildren(text.starting);
    const started = performance.now();
    const answer = await this.app.request("live_groups", { text: this.asked, session: this.session });
    this.asking = false;
    if (run !== this.app.run) {
      if (this.run === this.app.run) this.askAgain(); // else once this view is drawn again
      return;
    }
    if (answer.error !== undefined) this.status.replaceChildren(alertBox(answer.error, () => this.retry()));
    else {
      this.answer = answer;
      this.status.textContent = text.took(
        format.count(answer.tokens_read),
        format.ms(answer.milliseconds),
        format.ms(performance.now() - started),
      );
      this.draw();
    }
    this.ask(); // what was typed meanwhile
  }

  retry() {
    this.asked = null;
    return this.ask();
  }

  draw() {
    const { answer, app } = this;
    if (answer === null) return;
    const row = answer.layers.indexOf(app.run.layerIds[app.layerIndex]);
    const count = answer.pieces.length;
    const tops = decodeBase64(answer.top).subarray(row * count, (row + 1) * count);
    this.out.replaceChildren(
      ...shownPieces(answer.pieces).map((piece, pos) =>
        el(
          "span",
          {
            class: "fx-typed-token",
            "data-shade": row < 0 ? "none" : `g${tops[pos]}`,
            title: row < 0 ? null : text.group(groupLabel(tops[pos])),
          },
          piece,
        ),
      ),
    );
    const words = answer.next.map(([piece, share]) => `${visibleToken(piece)} ${format.percent(share)}`);
    this.next.textContent = words.length > 0 ? text.next(words.join(", ")) : "";
  }
}
