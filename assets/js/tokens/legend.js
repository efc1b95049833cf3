// One card per group of the chosen layer; pressing a card highlights the group.
(function () {
  const el = FX.el;
  const text = FX.strings.legend;
  const format = FX.format;

  // How many of the selected tokens each group of a layer has.
  FX.selectedPerGroup = (run, layerIndex, selection) => {
    const hits = new Uint32Array(run.numGroups);
    if (selection !== null) for (const pos of selection.positions) hits[run.top(layerIndex, pos)] += 1;
    return hits;
  };

  FX.Legend = class {
    constructor(tooltip, pressed) {
      this.pressed = pressed;
      this.list = el("div", { class: "fx-legend-list" });
      this.node = el(
        "aside",
        { class: "fx-legend", "data-testid": "fx-legend", "aria-label": text.title },
        el("h3", { class: "fx-subtitle" }, text.title),
        el("p", { class: "fx-help" }, text.hint, " ", text.confidenceHelp, FX.hint(tooltip, text.confidenceSubject, text.confidenceTitle)),
        this.list,
      );
      this.cards = [];
    }

    update(run, layerIndex, selection) {
      const origin = selection && selection.origin.kind === "group" && selection.origin.layer === run.layerIds[layerIndex] ? selection.origin : null;
      if (this.cards.length !== run.numGroups) this.createCards(run.numGroups);
      const hits = FX.selectedPerGroup(run, layerIndex, selection);
      this.cards.forEach((card, group) => {
        card.setAttribute("aria-pressed", String(origin !== null && group === origin.group));
        card.replaceChildren(...cardContent(group, run.groups[layerIndex][group], selection === null ? null : { count: hits[group], of: selection.size }));
      });
    }

    // Cards are kept across layers so that keyboard focus survives a layer switch.
    createCards(count) {
      this.cards = FX.range(count).map((group) => el("button", { type: "button", class: "fx-group", "data-group": group, onclick: () => this.pressed(group) }));
      this.list.replaceChildren(...this.cards);
    }
  };

  function cardContent(group, statistics, selected) {
    const { share, confidence } = statistics;
    return [
      el(
        "span",
        { class: "fx-group-head" },
        FX.chip(group),
        el("span", { class: "fx-group-share" }, text.share(format.percent(share))),
        el("span", { class: "fx-muted", title: text.confidenceTitle }, confidence === null ? "" : text.confidence(format.percent(confidence))),
      ),
      el("span", { class: "fx-group-bar" }, FX.bar(share, `g${group}`), selected === null ? null : selectedCount(selected)),
      frequentTokens(statistics.tokens),
    ];
  }

  function selectedCount({ count, of }) {
    return el("span", { class: "fx-group-hits", title: FX.strings.groups.cards.hit(format.count(count), format.count(of)) }, FX.strings.reading.selectedCount(format.count(count)));
  }

  function frequentTokens(tokens) {
    if (tokens.length === 0) return el("span", { class: "fx-muted" }, text.noTokens);
    return el("span", { class: "fx-frequent" }, tokens.map(([piece, count]) => el("code", { title: text.times(format.count(count)) }, FX.visibleToken(piece))));
  }
})();
