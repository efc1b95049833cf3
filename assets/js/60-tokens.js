// The text view: every token a coloured span, one page at a time, with tooltip and keyboard movement.
(function () {
  const el = FX.el;
  const text = FX.strings.tokens;
  const format = FX.format;
  const PAGE_SIZE = 2000;

  FX.TokensView = class {
    constructor(app, panel) {
      this.app = app;
      this.page = 0;
      this.colouring = "group";
      this.spans = [];
      this.legend = new FX.Legend((group) => this.toggleGroup(group));
      this.build(panel);
    }

    build(panel) {
      this.text = el("div", { class: "fx-text", role: "group", "aria-label": text.textLabel, "data-testid": "fx-tokens", dir: "auto" });
      this.key = el("div", { class: "fx-key" });
      this.pagers = [this.buildPager(), this.buildPager()];
      this.listen();
      panel.append(
        el("div", { class: "fx-toolbar" }, FX.choice(text.colourBy, text.colourings, this.colouring, (value) => this.setColouring(value)), this.labelsToggle(), this.key),
        el("div", { class: "fx-split" }, el("div", { class: "fx-reading" }, this.pagers[0].node, this.text, this.pagers[1].node, el("p", { class: "fx-help" }, text.keyboardHelp)), this.legend.node),
      );
    }

    labelsToggle() {
      const changed = (event) => this.text.classList.toggle("fx-with-labels", event.target.checked);
      return el("label", { class: "fx-toggle" }, el("input", { type: "checkbox", onchange: changed }), text.showLabels);
    }

    buildPager() {
      const previous = el("button", { type: "button", class: "fx-button", "aria-label": text.previousPage, onclick: () => this.turnTo(this.page - 1) }, "‹");
      const next = el("button", { type: "button", class: "fx-button", "aria-label": text.nextPage, onclick: () => this.turnTo(this.page + 1) }, "›");
      const status = el("span", { class: "fx-pager-status" });
      return { previous, next, status, node: el("nav", { class: "fx-pager", "aria-label": text.pager }, previous, status, next) };
    }

    listen() {
      const details = (event) => this.spanOf(event) && this.describe(this.spanOf(event));
      this.text.addEventListener("mouseover", details);
      this.text.addEventListener("focusin", (event) => {
        if (!this.spanOf(event)) return;
        this.makeCurrent(this.spanOf(event));
        details(event);
      });
      this.text.addEventListener("mouseleave", () => this.app.tooltip.hide());
      this.text.addEventListener("focusout", () => this.app.tooltip.hide());
      this.text.addEventListener("keydown", (event) => this.move(event));
    }

    spanOf(event) {
      return event.target.closest(".fx-token");
    }

    // A new run starts at its first page; a new layer only recolours.
    update() {
      if (this.run !== this.app.run) {
        this.run = this.app.run;
        this.page = 0;
        this.showPage();
      }
      this.recolour();
      this.legend.update(this.run, this.app.layerIndex, this.app.selection);
    }

    turnTo(page) {
      this.page = page;
      this.showPage();
      this.recolour();
      this.text.scrollIntoView({ block: "nearest" });
    }

    showPage() {
      const first = this.page * PAGE_SIZE;
      const pieces = this.run.pieces.slice(first, first + PAGE_SIZE);
      this.spans = pieces.map((piece, i) => tokenSpan(piece, first + i));
      this.text.replaceChildren(...this.spans);
      this.current = this.spans[0];
      if (this.current) this.current.tabIndex = 0;
      this.updatePagers(first, first + pieces.length - 1);
    }

    updatePagers(first, last) {
      const pages = Math.ceil(this.run.numTokens / PAGE_SIZE);
      for (const pager of this.pagers) {
        pager.node.hidden = pages < 2;
        pager.previous.disabled = this.page === 0;
        pager.next.disabled = this.page >= pages - 1;
        pager.status.textContent = text.pageStatus(format.count(first), format.count(last), format.count(this.run.numTokens));
      }
    }

    recolour() {
      const { run, app } = this;
      const shade = this.shader();
      for (const span of this.spans) {
        const pos = span.fxPos;
        const group = run.top(app.layerIndex, pos);
        span.dataset.group = group;
        span.dataset.label = FX.groupLabel(group);
        span.dataset.shade = shade(pos, group);
        span.classList.toggle("fx-dimmed", app.selection !== null && !app.selection.has(pos));
      }
      this.updateKey();
    }

    shader() {
      const { run, app } = this;
      const shaders = {
        group: (_, group) => `g${group}`,
        confidence: (pos) => FX.confidenceShade(run.confidence(app.layerIndex, pos), run.numGroups),
        loss: (pos) => FX.lossShade(run.lossDifference(pos)),
      };
      return shaders[this.colouring];
    }

    updateKey() {
      const keys = {
        group: () => [],
        confidence: () => scaleKey(text.confidenceKey(format.percent(1 / this.run.numGroups)), FX.confidenceShades()),
        loss: () => scaleKey(text.lossKey, FX.lossShades()),
      };
      this.key.replaceChildren(...keys[this.colouring]());
    }

    setColouring(value) {
      this.colouring = value;
      this.recolour();
    }

    toggleGroup(group) {
      this.app.toggleSelection(FX.selectGroup(this.run, this.app.layerIndex, group));
    }

    makeCurrent(span) {
      this.current.tabIndex = -1;
      this.current = span;
      span.tabIndex = 0;
    }

    move(event) {
      const target = this.moveTarget(event.key);
      if (!target) return;
      event.preventDefault();
      target.focus();
      target.scrollIntoView({ block: "nearest" });
      this.describe(target);
    }

    moveTarget(key) {
      const at = this.spans.indexOf(this.current);
      const targets = {
        ArrowRight: () => this.spans[at + 1],
        ArrowLeft: () => this.spans[at - 1],
        ArrowDown: () => this.lineNeighbour(at, 1),
        ArrowUp: () => this.lineNeighbour(at, -1),
        Home: () => this.spans[0],
        End: () => this.spans[this.spans.length - 1],
      };
      return key in targets ? targets[key]() : null;
    }

    // The token of the nearest other line that lies closest in the horizontal direction.
    lineNeighbour(at, step) {
      const start = this.spans[at].getBoundingClientRect();
      let line = null;
      let best = null;
      let bestGap = Infinity;
      for (let i = at + step; i >= 0 && i < this.spans.length; i += step) {
        const rect = this.spans[i].getBoundingClientRect();
        if (Math.abs(rect.top - start.top) < 4) continue;
        if (line === null) line = rect.top;
        if (Math.abs(rect.top - line) > 4) break;
        const gap = Math.abs(rect.left - start.left);
        if (gap < bestGap) [best, bestGap] = [this.spans[i], gap];
      }
      return best;
    }

    goTo(pos) {
      const page = Math.floor(pos / PAGE_SIZE);
      if (page !== this.page) this.turnTo(page);
      const span = this.spans[pos - page * PAGE_SIZE];
      span.scrollIntoView({ block: "center" });
      span.focus({ preventScroll: true });
    }

    describe(span) {
      const rect = span.getClientRects()[0] || span.getBoundingClientRect();
      this.app.tooltip.show(FX.tokenDetails(this.run, this.app.layerIndex, span.fxPos), rect);
      span.setAttribute("aria-describedby", this.app.tooltip.id);
    }
  };

  function tokenSpan(piece, pos) {
    const span = el("span", { class: "fx-token", "data-pos": pos, tabindex: "-1" });
    span.fxPos = pos;
    if (!piece.includes("\n")) {
      span.textContent = piece;
      return span;
    }
    span.classList.add("fx-breaks");
    // The mark before each line end is drawn by CSS, so copied text stays exact.
    piece.split(/(?=\n)/).forEach((part) => {
      if (part.startsWith("\n")) span.append(el("span", { class: "fx-newline", "aria-hidden": "true" }));
      span.append(part);
    });
    return span;
  }

  function scaleKey([low, high], shades) {
    return [el("span", {}, low), el("span", { class: "fx-key-scale", "aria-hidden": "true" }, shades.map((shade) => el("span", { class: "fx-swatch", "data-shade": shade }))), el("span", {}, high)];
  }

  FX.tokenDetails = (run, layerIndex, pos) => {
    const words = text.tooltip;
    return [
      el("div", { class: "fx-tooltip-head" }, el("code", {}, FX.visibleToken(run.pieces[pos])), el("span", { class: "fx-muted" }, words.position(format.count(pos), format.count(run.numTokens)))),
      el("div", { class: "fx-tooltip-row" }, el("span", { class: "fx-muted" }, words.memberOf), el("span", {}, run.groupsOf(layerIndex, pos).map((group) => FX.chip(group)))),
      el("div", { class: "fx-muted" }, words.probabilities),
      probabilityBars(run, layerIndex, pos),
      el("div", { class: "fx-tooltip-row" }, el("span", { class: "fx-muted" }, words.loss), lossWords(run, pos)),
    ];
  };

  function probabilityBars(run, layerIndex, pos) {
    const bars = FX.range(run.numGroups).map((group) => {
      const probability = run.probability(layerIndex, pos, group);
      return el("div", { class: "fx-probability" }, el("span", {}, FX.groupLabel(group)), FX.bar(probability, `g${group}`), el("span", { class: "fx-number" }, format.percent(probability)));
    });
    return el("div", { class: run.numGroups > 8 ? "fx-probabilities fx-many" : "fx-probabilities" }, bars);
  }

  function lossWords(run, pos) {
    const difference = run.lossDifference(pos);
    if (difference === null) return el("span", {}, text.tooltip.noLoss);
    const losses = text.tooltip.losses(format.decimal(run.losses.full[pos], 2), format.decimal(run.losses.focus[pos], 2));
    return el("span", {}, `${losses} ${text.tooltip.difference(format.signed(difference, 2))}`);
  }
})();
