// @ts-check
// The strongest single links of one layer: dropped ones and distant kept ones, each with its text.
import { range } from "../core/arrays.js";
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { partOfQueryHead } from "../core/heads.js";
import { LayerLoader } from "../core/loader.js";
import { selectTokens } from "../core/selection.js";
import { linkEnd } from "../core/token-text.js";
import { hintButton } from "../core/tooltip.js";
import { alertBox } from "../core/widgets.js";
import { pairs as pairsText } from "../strings/sparsity.js";
/** @import { AttentionLinksPayload } from "../core/payloads.js" */
/** @import { App } from "../shell/app.js" */

/** @typedef {"dropped" | "kept"} Kind */

const text = pairsText.links;

const SHOWN = 50;

const ALL = "all";

const KINDS = /** @type {Kind[]} */ (Object.keys(text.kinds));

export class LinkLists {
  /** Of the open layer; null while it is on its way. @type {AttentionLinksPayload | null} */
  answer = null;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {number | null} */
    this.head = null;
    this.numHeads = 0;
    this.title = el("span", {});
    this.status = el("div", { class: "fx-status" });
    this.select = el("select", { onchange: (event) => this.chosen(event.target.value) });
    this.lists = Object.fromEntries(
      KINDS.map((kind) => [
        kind,
        el("ol", {
          class: "fx-links",
          tabindex: "0",
          "aria-label": text.kinds[kind],
          "data-testid": `fx-links-${kind}`,
        }),
      ]),
    );
    this.counts = Object.fromEntries(KINDS.map((kind) => [kind, el("p", { class: "fx-help" })]));
    /** @param {Kind} kind */
    const column = (kind) =>
      el(
        "div",
        { class: "fx-link-column" },
        el("h4", { class: "fx-link-title" }, text.kinds[kind]),
        el("p", { class: "fx-help" }, text.kindHelp[kind]),
        this.lists[kind],
        this.counts[kind],
      );
    this.node = el(
      "div",
      { class: "fx-part" },
      el("h3", { class: "fx-subtitle" }, this.title),
      el(
        "p",
        { class: "fx-help" },
        text.hint,
        " ",
        text.affinity,
        hintButton(app.tooltip, text.affinitySubject, text.affinityTitle),
      ),
      el("div", { class: "fx-toolbar" }, el("label", { class: "fx-select" }, text.head, this.select)),
      this.status,
      el("div", { class: "fx-link-columns" }, KINDS.map(column)),
    );
    this.loader = new LayerLoader((run, layer) => app.request("attention_links", { run, layer }), {
      open: () => app.isOpen("sparsity"),
      waiting: () => this.wait(),
      ready: (answer) => this.show(answer),
      failed: (message) => this.status.replaceChildren(alertBox(message, () => this.update())),
    });
  }

  /** @param {number} count */
  setHeads(count) {
    this.numHeads = count;
    if (this.head !== null && this.head >= count) this.head = null;
    this.select.replaceChildren(
      el("option", { value: ALL }, text.allHeads),
      ...range(count).map((head) => el("option", { value: String(head) }, text.headNumber(head))),
    );
    this.select.value = this.head === null ? ALL : String(this.head);
  }

  /** @param {number | null} head */
  setHead(head) {
    this.head = head;
    this.select.value = head === null ? ALL : String(head);
  }

  /** @param {string} value */
  chosen(value) {
    this.head = value === ALL ? null : Number(value);
    this.draw();
  }

  update() {
    const { run, layerIndex } = this.app;
    this.title.textContent = text.title(run.layerIds[layerIndex]);
    this.loader.request(run.info.run_id, run.layerIds[layerIndex]);
  }

  wait() {
    this.answer = null;
    for (const list of Object.values(this.lists)) list.classList.add("fx-stale");
  }

  /** @param {AttentionLinksPayload} answer */
  show(answer) {
    this.answer = answer;
    this.status.replaceChildren();
    this.draw();
  }

  draw() {
    const { answer } = this;
    if (answer === null) return;
    const none = this.head === null ? text.none : text.noneOfHead;
    for (const kind of KINDS) {
      const links = answer[kind].filter(([head]) => this.head === null || head === this.head).slice(0, SHOWN);
      this.lists[kind].classList.remove("fx-stale");
      this.lists[kind].replaceChildren(
        ...(links.length ? links.map((link) => this.item(link)) : [el("li", { class: "fx-muted" }, none[kind])]),
      );
      this.lists[kind].scrollTop = 0;
      this.counts[kind].textContent = links.length ? text.shown(format.count(links.length)) : "";
    }
    this.selectionChanged();
  }

  /** @param {[number, number, number, number, number]} pair */
  item([head, query, key, probability, affinity]) {
    const { run, layerIndex } = this.app;
    const { full } = partOfQueryHead(run.layers[layerIndex].parts, head, this.numHeads);
    const percent = format.percent(probability, 1);
    const [distance, headText, affinityText] = text.details(
      format.count(query - key),
      full ? text.fullHead(head) : text.oneHead(head),
      affinity < 0.005 ? "<0.01" : format.decimal(affinity, 2),
    );
    return el(
      "li",
      {},
      buttonOf(
        [
          el("strong", { class: "fx-link-share fx-number" }, percent),
          el(
            "div",
            { class: "fx-link-text" },
            linkEnd(run, text.query, query),
            linkEnd(run, text.key, key),
            el(
              "div",
              { class: "fx-link-details fx-muted" },
              el("span", {}, distance),
              el("span", {}, headText),
              el("span", { title: text.affinityTitle }, affinityText),
            ),
          ),
        ],
        () => this.go(query, key),
        { class: "fx-link", "data-query": query, "data-key": key, "aria-label": text.open(query, key, percent) },
      ),
    );
  }

  /**
   * @param {number} query
   * @param {number} key
   */
  go(query, key) {
    const label = text.label(format.count(query), format.count(key));
    this.app.select(selectTokens([key, query], "tokens", label));
    this.app.goToToken(query);
  }

  // A link is marked when both its tokens are selected.
  selectionChanged() {
    const { selection } = this.app;
    for (const link of this.node.querySelectorAll(".fx-link")) {
      const both =
        selection !== null && selection.has(Number(link.dataset.query)) && selection.has(Number(link.dataset.key));
      link.classList.toggle("fx-link-selected", both);
    }
  }
}
