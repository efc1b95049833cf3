// @ts-check
// Why Focus predicts a token worse: the dropped pairs that would have helped, drawn in the text and listed.
import { ArcText, excerpt } from "../core/arc-text.js";
import { ComparePart } from "./part.js";
import { addressOf } from "../core/address.js";
import { buttonOf, el, newId } from "../core/dom.js";
import { labelledField } from "../core/fields.js";
import { format } from "../core/format.js";
import { selectTokens } from "../core/selection.js";
import { contextLine, linkEnd } from "../core/token-text.js";
import { links as text } from "../strings/compare.js";
/** @import { ExplainedTokenPayload, MissingLinkPayload, MissingLinksPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Run } from "../core/run.js" */
/** @import { JobQuestion } from "../core/types.js" */

/** @typedef {MissingLinkPayload & { nll: number }} VerifiedLink */

/** @param {MissingLinkPayload} link @returns {link is VerifiedLink} */
const isVerified = (link) => link.nll !== null;

export class CompareLinks extends ComparePart {
  /** @type {Run} */
  run;
  /** The run and the tokens that have buttons. */
  knownKey = "";

  /** @param {App} app */
  constructor(app) {
    super(app, "links", text);
    this.kind = "links";
    /** @type {{ state: JobQuestion, start: JobQuestion }} */
    this.questions = { state: "compare_links", start: "compare_links_start" };
    /** The token that is shown. @type {number | null} */
    this.token = null;
    /** @type {ExplainedTokenPayload | null} */
    this.explained = null;
    this.field = el("input", { id: newId("token"), type: "number", min: 1, step: 1 });
    this.field.addEventListener("change", () => this.choose(this.field.valueAsNumber));
    this.form = el("form", { class: "fx-form", onsubmit: (event) => event.preventDefault() });
    this.form.append(
      labelledField(text.token, this.field),
      this.button(text.start, () => this.submit()),
    );
    this.known = el("p", { class: "fx-help fx-known-tokens" });
    this.context = el("p", { class: "fx-help" });
    this.verdict = el("div", { class: "fx-verdict", "data-testid": "fx-links-verdict" });
    this.arcs = new ArcText(text.arcs, (pos) => app.goToToken(pos));
    this.list = el("ol", { class: "fx-missing-links", "data-testid": "fx-missing-links" });
    this.results = el(
      "div",
      { class: "fx-compare-results", hidden: true },
      this.verdict,
      this.arcs.node,
      el("h4", { class: "fx-link-title fx-missing-title" }, text.listTitle),
      this.list,
    );
    this.node.append(
      el("p", { class: "fx-help" }, text.help),
      this.form,
      this.context,
      this.line.node,
      this.known,
      this.results,
    );
  }

  update() {
    if (this.run !== this.app.run) {
      this.run = this.app.run;
      this.explained = null;
      this.results.hidden = true;
      this.field.max = String(this.run.numTokens - 1);
      const addressed = Number(addressOf("compare", this.run).get("why"));
      this.choose(addressed >= 1 && addressed < this.run.numTokens ? addressed : mostHurt(this.run));
    } else this.watch();
  }

  /** @param {number | null} token */
  choose(token) {
    this.token = token !== null && Number.isInteger(token) ? token : null;
    if (this.token !== null) this.field.value = String(this.token);
    this.app.writeAddress();
    this.showContext();
    return this.watch();
  }

  /** Opens a token, and explains it unless that was done. @param {number} token */
  async explain(token) {
    await this.choose(token);
    if (this.explained?.token !== token && !this.busy) await this.submit();
  }

  submit() {
    return this.start({});
  }

  /**
   * Every question names the token that is shown.
   * @override
   */
  watch(what = this.questions.state, details = {}) {
    return super.watch(what, { token: this.token, ...details });
  }

  showContext() {
    const { run, token } = this;
    if (token === null || token < 1 || token >= run.numTokens) {
      this.context.replaceChildren(text.noToken(format.count(run.numTokens - 1)));
      return;
    }
    const [full, focus] = [run.losses.full[token], run.losses.focus[token]].map((nll) =>
      format.decimal(/** @type {number} */ (nll), 2),
    );
    this.context.replaceChildren(contextLine(run, token), text.stored(full, focus));
  }

  /** @param {MissingLinksPayload} answer */
  received(answer) {
    this.showKnown(answer.tokens);
    const same = JSON.stringify(answer.explained) === JSON.stringify(this.explained);
    this.explained = answer.explained;
    this.startButton.textContent = answer.explained === null ? text.start : text.again;
    if (!same || this.results.hidden) this.show();
  }

  /**
   * Buttons of the tokens explained so far; they are built anew only for others, so that the focus stays on them.
   * @param {number[]} tokens
   */
  showKnown(tokens) {
    const key = JSON.stringify([this.run.info.run_id, tokens]);
    if (key !== this.knownKey) {
      const buttons = tokens.map((pos) =>
        buttonOf(`${this.run.tokenLabel(pos)} ${format.count(pos)}`, () => this.choose(pos), { "data-pos": pos }),
      );
      this.known.replaceChildren(...(tokens.length > 0 ? [text.known, ...buttons] : []));
    }
    this.knownKey = key;
    for (const button of this.known.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(Number(button.dataset.pos) === this.token));
  }

  show() {
    const { explained, run } = this;
    this.results.hidden = explained === null;
    if (explained === null) return;
    const links = explained.links.filter(isVerified);
    this.verdict.replaceChildren(...sentences(run, explained, links).map((words) => el("p", {}, words)));
    this.arcs.show(
      excerpt(run, [explained.token, ...links.flatMap(({ query, key }) => [query, key])]),
      explained.token,
      links.map((link) => ({ from: link.query, to: link.key, gain: explained.nll_focus - link.nll })),
    );
    this.list.replaceChildren(...links.map((link, number) => this.item(link, number, explained.nll_focus)));
  }

  /**
   * @param {VerifiedLink} link
   * @param {number} number
   * @param {number} before
   */
  item(link, number, before) {
    const { run } = this;
    const details = text.details(
      link.layer,
      link.head,
      format.count(link.query - link.key),
      format.percent(link.probability, 0),
      format.signed(link.predicted, 2),
    );
    const change = format.signed(link.nll - before, 2);
    return el(
      "li",
      {},
      buttonOf(
        [
          el("strong", { class: "fx-link-share fx-number" }, change),
          el(
            "div",
            { class: "fx-link-text" },
            linkEnd(run, text.query, link.query),
            linkEnd(run, text.key, link.key),
            el(
              "div",
              { class: "fx-link-details fx-muted" },
              details.map((words) => el("span", {}, words)),
              link.random_keeps === null ? null : el("span", {}, text.random(link.random_keeps)),
            ),
          ),
        ],
        () => this.go(link),
        {
          class: "fx-link",
          "aria-label": text.open(link.query, link.key, link.layer, change),
          onmouseenter: () => this.arcs.mark(number),
          onmouseleave: () => this.arcs.mark(null),
          onfocus: () => this.arcs.mark(number),
          onblur: () => this.arcs.mark(null),
        },
      ),
    );
  }

  /** @param {MissingLinkPayload} link */
  go({ layer, query, key }) {
    const { app } = this;
    app.select(selectTokens([key, query], "tokens", text.label(format.count(query), format.count(key))));
    app.setLayer(this.run.layerIds.indexOf(layer));
    app.goToToken(query);
  }
}

/**
 * The token with the largest loss difference; null where none is scored.
 * @param {Run} run
 */
function mostHurt(run) {
  let worst = /** @type {number | null} */ (null);
  for (let pos = 1; pos < run.numTokens; pos += 1) {
    const difference = run.lossDifference(pos);
    if (difference === null) continue;
    if (worst === null || difference > /** @type {number} */ (run.lossDifference(worst))) worst = pos;
  }
  return worst;
}

/**
 * @param {Run} run
 * @param {ExplainedTokenPayload} explained
 * @param {VerifiedLink[]} links
 */
function sentences(run, explained, links) {
  const { token, nll_full: full, nll_focus: focus, nll_together: together } = explained;
  /** @param {number} value */
  const nats = (value) => format.decimal(value, 2);
  const lines = [text.loss(run.tokenLabel(token), format.count(token), nats(full), nats(focus))];
  if (links.length === 0 || together === null) return [...lines, text.none(format.count(explained.dropped_pairs))];
  const single = links.reduce((sum, link) => sum + focus - link.nll, 0);
  const gained = focus - together;
  const effect = () => {
    if (gained <= 0) return text.noGain(links.length);
    if (focus <= full) return text.gains(nats(gained));
    return text[gained > focus - full ? "explainsMore" : "explains"](nats(gained), nats(focus - full));
  };
  lines.push(text.added(links.length, nats(together)) + effect());
  if (links.length > 1) lines.push(text.single(nats(single), gained > 0 && single > gained * 1.1));
  const judged = links.filter(({ random_keeps }) => random_keeps !== null);
  const kept = judged.filter(({ random_keeps }) => random_keeps).length;
  if (judged.length > 0) lines.push(text.baselines(kept, judged.length));
  lines.push(text.found(format.count(explained.dropped_pairs)));
  return lines;
}
