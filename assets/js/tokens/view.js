// The text view: every token a coloured span, drawn near the screen only; search, filters, keyboard, and one token's links.
(function () {
  const el = FX.el;
  const text = FX.strings.tokens;
  const reading = FX.strings.reading;
  const format = FX.format;
  const DRAG_SLACK = 4; // pixels a click may wander
  const DRAG_PAUSE = 60; // ms between selections while dragging: browsers slow down pages that rewrite their address more often
  const DEFAULT_COLOURING = "group";
  const NEEDS_LAYER = ["confidence", "entropy"];

  FX.TokensView = class {
    constructor(app, panel) {
      this.app = app;
      this.wanted = FX.addressed("tokens");
      this.colouring = Object.hasOwn(reading.colourings, this.wanted.get("colour")) ? this.wanted.get("colour") : DEFAULT_COLOURING;
      this.current = 0;
      this.links = null;
      this.problem = null;
      this.search = new FX.Search(app, { changed: () => { this.repaint(); app.writeAddress(); }, went: (hit) => this.showHit(hit), top: () => this.topToken() });
      this.filter = new FX.TokenFilter(app, () => { this.applyFilter(); app.writeAddress(); });
      this.legend = new FX.Legend(app.tooltip, (group) => this.toggleGroup(group));
      this.detail = new FX.TokenPanel(app, () => this.closeDetail());
      this.build(panel);
    }

    build(panel) {
      const attributes = { role: "listbox", tabindex: "0", "aria-multiselectable": "true", "aria-label": text.textLabel, "data-testid": "fx-tokens" };
      this.lines = new FX.Lines(attributes, (span, pos) => this.paint(span, pos));
      this.text = this.lines.text;
      this.lines.changed = () => this.pointAtCurrent();
      this.key = el("div", { class: "fx-key" });
      this.listen();
      panel.append(
        el("div", { class: "fx-toolbar" }, FX.choice(text.colourBy, reading.colourings, this.colouring, (value) => this.setColouring(value)), this.labelsToggle(), this.key),
        el("div", { class: "fx-split" }, el("div", { class: "fx-reading" }, this.search.node, this.filter.node, this.lines.node, el("p", { class: "fx-help" }, reading.help)), el("div", { class: "fx-side" }, this.detail.node, this.legend.node)),
      );
    }

    labelsToggle() {
      const changed = (event) => this.lines.setLabels(event.target.checked, this.run.numGroups);
      return el("label", { class: "fx-toggle" }, el("input", { type: "checkbox", onchange: changed }), text.showLabels);
    }

    listen() {
      const details = (event) => this.spanOf(event) && this.describe(this.spanOf(event));
      this.text.addEventListener("mouseover", details);
      this.text.addEventListener("mouseleave", () => this.app.tooltip.hide());
      this.text.addEventListener("focusout", () => this.app.tooltip.hide());
      this.text.addEventListener("keydown", (event) => this.keyDown(event));
      this.text.addEventListener("copy", (event) => this.copy(event));
      this.text.addEventListener("pointerdown", (event) => this.pointerDown(event));
      this.text.addEventListener("pointermove", (event) => this.pointerMove(event));
      this.text.addEventListener("click", (event) => this.click(event));
      this.lines.node.addEventListener("scroll", () => this.app.tooltip.hide(), { passive: true });
    }

    spanOf(event) {
      const node = event.target.closest(".fx-token, .fx-tail");
      return node && node.fxPos !== undefined ? node : null;
    }

    // A new run starts at its selection or its beginning; a new layer only recolours.
    update() {
      this.problem = null;
      if (this.run !== this.app.run) this.openRun();
      else if (this.filter.active) this.applyFilter();
      else if (this.lines.lines.length === 0) this.lines.lay(true);
      this.selectionChanged();
    }

    openRun() {
      const { run, selection } = this.app;
      this.run = run;
      this.current = 0;
      this.links = null;
      this.anchor = undefined;
      this.search.reset();
      this.filter.reset();
      this.passes = () => true;
      this.prepareColours();
      this.lines.setText(run.pieces);
      this.restore();
      if (selection) this.moveTo(selection.positions[0], true);
    }

    // The address speaks of the first run it opens, not of those a person opens later.
    restore() {
      const { wanted } = this;
      this.wanted = null;
      if (wanted === null) return;
      this.filter.restore(wanted);
      this.search.restore(wanted);
    }

    get parameters() {
      const colour = this.colouring === DEFAULT_COLOURING ? null : this.colouring;
      return { colour, ...this.search.parameters, ...this.filter.parameters };
    }

    selectionChanged() {
      const { app } = this;
      const { selection, layerIndex } = app;
      const pos = selection !== null && selection.size === 1 ? selection.positions[0] : null;
      this.links = pos !== null && this.run.hasLayer(layerIndex) ? new FX.Links(this.run, layerIndex, pos) : null;
      if (pos === null) this.detail.hide();
      else this.detail.show(pos, this.links, this.problem);
      this.repaint();
      this.legend.update(this.run, layerIndex, selection);
    }

    layerFailed(message) {
      this.problem = message;
      if (this.app.isOpen("tokens")) this.selectionChanged();
    }

    closeDetail() {
      this.app.select(null);
      this.text.focus({ preventScroll: true });
    }

    repaint() {
      if (!this.run) return;
      this.prepareColours();
      this.lines.repaint();
      this.pointAtCurrent();
      this.updateKey();
    }

    // A screen reader must not be sent to a token that is scrolled away and so is not on the page.
    pointAtCurrent() {
      if (this.lines.spanOf(this.current)) this.text.setAttribute("aria-activedescendant", `fx-token-${this.current}`);
      else this.text.removeAttribute("aria-activedescendant");
    }

    // The looks of one token; called for those on screen only.
    paint(span, pos) {
      const { layerIndex, selection } = this.app;
      const group = this.run.top(layerIndex, pos);
      const cause = this.links === null ? null : this.links.cause(pos);
      const itself = this.links !== null && pos === this.links.pos;
      const selected = selection !== null && selection.has(pos);
      const data = span.dataset;
      data.group = group;
      data.label = FX.groupLabel(group);
      data.shade = this.shade(pos, group);
      if (cause === null || itself) delete data.link;
      else [data.link, data.way] = [cause, pos < this.links.pos ? "back" : "forward"];
      const { classList } = span;
      classList.toggle("fx-dimmed", (selection !== null && !selected && cause === null) || !this.passes(pos));
      classList.toggle("fx-chosen", itself);
      classList.toggle("fx-current", pos === this.current);
      classList.toggle("fx-hit", this.search.hitTokens.has(pos));
      const now = this.search.now();
      classList.toggle("fx-hit-now", now !== null && pos >= now[0] && pos <= now[1]);
      if (span.role === "option") span.setAttribute("aria-selected", String(selected));
    }

    // What does not change from token to token is worked out once.
    prepareColours() {
      const { run, app } = this;
      const { layerIndex } = app;
      const company = this.colouring === "path" ? run.company() : null;
      [this.low, this.high] = company === null ? [0, 1] : extent(company);
      const span = this.high - this.low || 1;
      const most = Math.log(run.numGroups) || 1;
      const shades = {
        group: (_, group) => `g${group}`,
        confidence: (pos) => FX.confidenceShade(run.confidence(layerIndex, pos), run.numGroups),
        entropy: (pos) => FX.shareShade(run.entropy(layerIndex, pos) / most),
        loss: (pos) => FX.lossShade(run.lossDifference(pos)),
        path: (pos) => FX.shareShade((company[pos] - this.low) / span),
      };
      const waits = NEEDS_LAYER.includes(this.colouring) && !run.hasLayer(layerIndex);
      this.shade = waits ? () => "none" : shades[this.colouring];
    }

    updateKey() {
      const { run, app, colouring } = this;
      const words = {
        group: () => [el("span", {}, reading.groupKey)],
        confidence: () => scaleKey(text.confidenceKey(format.percent(1 / run.numGroups)), FX.confidenceShades()),
        entropy: () => scaleKey(reading.entropyKey(format.decimal(Math.log(run.numGroups), 2)), FX.confidenceShades()),
        loss: () => scaleKey(text.lossKey, FX.lossShades()),
        path: () => scaleKey(reading.pathKey(format.percent(this.low), format.percent(this.high)), FX.confidenceShades()),
      };
      const name = reading.colourings[colouring];
      const key = `${run.info.run_id} ${colouring}`;
      if (this.drawnKey === key) return; // a hint just pressed must not lose the focus
      this.drawnKey = key;
      this.key.replaceChildren(...words[colouring](), FX.hint(app.tooltip, name, reading.colouringHints[colouring]));
    }

    setColouring(value) {
      this.colouring = value;
      this.repaint();
      this.app.writeAddress();
    }

    toggleGroup(group) {
      this.app.toggleSelection(FX.selectGroup(this.run, this.app.layerIndex, group));
    }

    applyFilter() {
      if (!this.run) return;
      this.passes = this.filter.active ? this.filter.test() : () => true;
      const hides = this.filter.active && this.filter.mode === "hide";
      this.filter.count();
      this.prepareColours();
      if (hides || !this.lines.all) this.lines.setText(this.run.pieces, hides ? Uint32Array.from(this.filter.positions()) : null);
      this.repaint();
    }

    topToken() {
      const anchor = this.lines.anchor();
      return anchor === null ? 0 : anchor.pos;
    }

    showHit([first]) {
      this.moveTo(first, !this.isVisible(first));
      this.repaint();
    }

    isVisible(pos) {
      const span = this.lines.spanOf(pos);
      if (span === null) return false;
      const [inner, outer] = [span.getBoundingClientRect(), this.lines.node.getBoundingClientRect()];
      return inner.top >= outer.top && inner.bottom <= outer.bottom;
    }

    // Makes a token the current one, the one the keyboard acts on, and brings it into view.
    moveTo(pos, centre = false) {
      this.lines.spanOf(this.current)?.classList.remove("fx-current");
      this.current = pos;
      const span = this.lines.reveal(pos, centre);
      span?.classList.add("fx-current");
      this.pointAtCurrent();
      return span;
    }

    goTo(pos) {
      if (!this.lines.has(pos)) this.filter.clear();
      const span = this.moveTo(pos, true);
      this.lines.node.scrollIntoView({ block: "nearest" });
      this.text.focus({ preventScroll: true });
      if (span) this.describe(span);
    }

    describe(span) {
      if (this.dragging) return;
      const rect = span.getClientRects()[0] || span.getBoundingClientRect();
      this.app.tooltip.show(FX.tokenDetails(this.run, this.app.layerIndex, span.fxPos), rect);
    }
  };

  function extent(values) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return [low, high];
  }

  // Choosing tokens with the pointer and the keyboard.
  Object.assign(FX.TokensView.prototype, {
    pointerDown(event) {
      const span = this.spanOf(event);
      this.dragging = false;
      this.dragTo = null;
      this.dragFrom = span && event.button === 0 && event.pointerType === "mouse" ? { pos: span.fxPos, x: event.clientX, y: event.clientY } : null;
    },

    pointerMove(event) {
      if (!this.dragFrom || (event.buttons & 1) === 0) return;
      const span = this.spanOf(event);
      const moved = Math.hypot(event.clientX - this.dragFrom.x, event.clientY - this.dragFrom.y);
      if (!span || moved < DRAG_SLACK || (!this.dragging && span.fxPos === this.dragFrom.pos)) return;
      this.dragging = true;
      this.app.tooltip.hide();
      if (this.dragTo === span.fxPos) return;
      this.dragTo = span.fxPos;
      this.anchor = this.dragFrom.pos;
      if (performance.now() - (this.draggedAt || 0) > DRAG_PAUSE) this.selectDragged();
    },

    selectDragged() {
      this.draggedAt = performance.now();
      this.app.select(FX.selectRange(this.dragFrom.pos, this.dragTo));
    },

    click(event) {
      const span = this.spanOf(event);
      const dragged = this.dragging;
      if (dragged) this.selectDragged();
      this.dragging = false;
      this.dragTo = null;
      if (!span || dragged) return;
      const anchor = event.shiftKey ? this.rangeStart() : null;
      this.moveTo(span.fxPos);
      this.app.tooltip.hide(); // the panel says the same and more
      if (anchor === null) this.choose(span.fxPos);
      else this.app.select(FX.selectRange(anchor, span.fxPos));
    },

    choose(pos) {
      this.anchor = pos;
      this.app.toggleSelection(FX.selectToken(pos));
    },

    rangeStart() {
      return this.anchor === undefined || this.app.selection === null ? this.current : this.anchor;
    },

    keyDown(event) {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.choose(this.current);
        return;
      }
      const target = event.ctrlKey || event.metaKey || event.altKey ? undefined : this.keyTarget(event.key);
      if (target === undefined) return;
      event.preventDefault();
      if (target === null || target < 0 || target >= this.run.numTokens) return;
      const anchor = event.shiftKey ? this.rangeStart() : null;
      const span = this.moveTo(target);
      if (anchor !== null) {
        this.anchor = anchor;
        this.app.select(FX.selectRange(anchor, target));
      } else if (span) this.describe(span);
    },

    // undefined: not a key of this view; null: there is nothing in that direction.
    keyTarget(key) {
      const { lines, current } = this;
      const { shown } = lines;
      const screen = Math.max(1, Math.floor(lines.node.clientHeight / lines.lineHeight) - 2);
      const at = Math.min(lines.indexOf(current), shown.length - 1);
      const inShown = (index) => (index >= 0 && index < shown.length ? shown[index] : null);
      const targets = {
        ArrowRight: () => inShown(at + 1),
        ArrowLeft: () => inShown(at - 1),
        ArrowDown: () => lines.neighbour(current, 1),
        ArrowUp: () => lines.neighbour(current, -1),
        PageDown: () => lines.neighbour(current, 1, screen),
        PageUp: () => lines.neighbour(current, -1, screen),
        Home: () => inShown(0),
        End: () => inShown(shown.length - 1),
      };
      return key in targets ? targets[key]() : undefined;
    },

    // The exact text of the selected tokens, line ends and all, however it is broken on screen.
    copy(event) {
      const { selection } = this.app;
      if (selection === null) return;
      event.preventDefault();
      event.clipboardData.setData("text/plain", Array.from(selection.positions, (pos) => this.run.pieces[pos]).join(""));
    },
  });

  function scaleKey([low, high], shades) {
    return [el("span", {}, low), el("span", { class: "fx-key-scale", "aria-hidden": "true" }, shades.map((shade) => el("span", { class: "fx-swatch", "data-shade": shade }))), el("span", {}, high)];
  }

  FX.tokenDetails = (run, layerIndex, pos) => {
    const words = text.tooltip;
    return [
      el("div", { class: "fx-tooltip-head" }, el("code", {}, FX.visibleToken(run.pieces[pos])), el("span", { class: "fx-muted" }, words.position(format.count(pos), format.count(run.numTokens)))),
      el("div", { class: "fx-tooltip-row" }, el("span", { class: "fx-muted" }, words.memberOf), el("span", {}, run.groupsOf(layerIndex, pos).map((group) => FX.chip(group)))),
      ...(run.hasLayer(layerIndex) ? [el("div", { class: "fx-muted" }, words.probabilities), probabilityBars(run, layerIndex, pos)] : [el("div", { class: "fx-muted" }, reading.loadingLayer)]),
      el("div", { class: "fx-tooltip-row" }, el("span", { class: "fx-muted" }, words.loss), FX.lossWords(run, pos)),
    ];
  };

  function probabilityBars(run, layerIndex, pos) {
    const bars = FX.range(run.numGroups).map((group) => {
      const probability = run.probability(layerIndex, pos, group);
      return el("div", { class: "fx-probability" }, el("span", {}, FX.groupLabel(group)), FX.bar(probability, `g${group}`), el("span", { class: "fx-number" }, format.percent(probability)));
    });
    return el("div", { class: run.numGroups > 8 ? "fx-probabilities fx-many" : "fx-probabilities" }, bars);
  }

  FX.lossWords = (run, pos) => {
    const difference = run.lossDifference(pos);
    if (difference === null) return el("span", {}, text.tooltip.noLoss);
    const losses = text.tooltip.losses(format.decimal(run.losses.full[pos], 2), format.decimal(run.losses.focus[pos], 2));
    return el("span", {}, `${losses} ${text.tooltip.difference(format.signed(difference, 2))}`);
  };
})();
