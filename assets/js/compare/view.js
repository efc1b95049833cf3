// The comparison view: Focus against full attention on the same text, and the parts that compare with something else.
(function () {
  const el = FX.el;
  const text = FX.strings.compare;
  const format = FX.format;
  const LISTED = 10;
  const PARTS = { settings: FX.CompareSettings, runs: FX.CompareRuns, lengths: FX.CompareLengths, generation: FX.CompareGeneration };

  // One part at a time, so that the view stays short; the address remembers which.
  FX.CompareView = class {
    constructor(app, panel) {
      this.app = app;
      const words = FX.strings.compareParts;
      this.parts = { overview: new Overview(app) };
      for (const [name, Part] of Object.entries(PARTS)) this.parts[name] = new Part(app);
      this.open = FX.part(Object.keys(this.parts), "overview");
      const choice = FX.choice(words.label, words.names, this.open, (name) => this.choose(name));
      choice.classList.add("fx-compare-choice");
      panel.append(choice, ...Object.values(this.parts).map((part) => part.node));
    }

    // For the address: nothing for the part that opens by itself.
    get part() {
      return this.open === "overview" ? null : this.open;
    }

    // For the address: the run beside this one, while it is looked at.
    get parameters() {
      return { with: this.open === "runs" ? this.parts.runs.other : null };
    }

    choose(name) {
      this.open = name;
      this.app.writeAddress();
      this.app.tooltip.hide();
      this.update();
      FX.resizePlots(this.parts[name].node); // the window may have changed while the part was hidden
    }

    update() {
      for (const [name, part] of Object.entries(this.parts)) part.node.hidden = name !== this.open;
      this.parts[this.open].update();
      this.selectionChanged();
    }

    selectionChanged() {
      const part = this.parts[this.open];
      if (part.selectionChanged && part.marked !== this.app.selection) {
        part.marked = this.app.selection;
        part.selectionChanged();
      }
    }
  };

  class Overview {
    constructor(app) {
      this.app = app;
      this.verdict = el("div", { class: "fx-verdict" });
      this.table = el("div", { class: "fx-table-wrap" });
      this.chart = el("div", { class: "fx-plot fx-loss", role: "group", "aria-label": text.lossTitle, "data-testid": "fx-loss-chart" });
      this.lists = el("div", { class: "fx-lists" });
      this.chosen = el("p", { class: "fx-chosen", role: "status", "data-testid": "fx-selected-loss" });
      this.node = el("div", {});
      this.node.append(
        el("div", { class: "fx-compare", "data-testid": "fx-compare" }, this.verdict, this.table),
        el("section", { class: "fx-chart" }, el("h3", { class: "fx-subtitle" }, text.lossTitle, FX.hint(app.tooltip, FX.strings.nats.subject, FX.strings.nats.hint)), el("p", { class: "fx-help" }, text.lossHint), this.chosen, this.chart),
        this.lists,
      );
    }

    update() {
      const { run, root } = this.app;
      const theme = FX.themeOf(root);
      // Nothing here depends on the layer.
      if (this.run === run && this.theme === theme) return;
      this.theme = theme;
      if (this.run !== run) {
        this.run = run;
        this.differences = FX.range(run.numTokens).map((pos) => run.lossDifference(pos));
        this.verdict.replaceChildren(...verdict(run).map((sentence) => el("p", {}, sentence)));
        this.table.replaceChildren(comparisonTable(run, this.app.tooltip));
        this.showLists();
      }
      this.marked = this.app.selection;
      this.showChosen();
      this.drawChart();
    }

    selectionChanged() {
      this.showChosen();
      this.drawChart();
    }

    // What the chosen tokens lose on average, beside all others.
    showChosen() {
      const { selection } = this.app;
      const words = FX.strings.compareSelection;
      for (const button of this.lists.querySelectorAll("[data-pos]")) button.toggleAttribute("data-selected", selection !== null && selection.has(Number(button.dataset.pos)));
      if (selection === null) {
        this.chosen.textContent = "";
        return;
      }
      const sums = { inside: [0, 0], outside: [0, 0] };
      this.differences.forEach((value, pos) => {
        if (value === null) return;
        const sum = selection.has(pos) ? sums.inside : sums.outside;
        sum[0] += value;
        sum[1] += 1;
      });
      const mean = ([total, count]) => (count === 0 ? null : format.signed(total / count, 3));
      this.chosen.textContent = sums.inside[1] === 0 ? words.none : words.mean(mean(sums.inside), format.count(sums.inside[1]), mean(sums.outside));
    }

    showLists() {
      const scored = FX.range(this.run.numTokens).filter((pos) => this.differences[pos] !== null);
      const ranked = scored.sort((a, b) => this.differences[b] - this.differences[a]);
      const hurt = ranked.filter((pos) => this.differences[pos] > 0).slice(0, LISTED);
      const helped = ranked.filter((pos) => this.differences[pos] < 0).slice(-LISTED).reverse();
      this.lists.replaceChildren(this.tokenList("hurt", hurt, text.noneHurt), this.tokenList("helped", helped, text.noneHelped));
    }

    tokenList(name, positions, none) {
      const items = positions.map((pos) => el("li", {}, this.tokenItem(pos)));
      const words = FX.strings.compareSelection;
      const choose = () => this.app.toggleSelection(FX.selectTokens(positions, "row", words.label[name]));
      const button = el("button", { type: "button", class: "fx-button", onclick: choose, "aria-label": `${words.choose}: ${words.label[name]}`, "data-testid": `fx-select-${name}` }, words.choose);
      const head = el("div", { class: "fx-list-head" }, el("h3", { class: "fx-subtitle" }, text[name]), positions.length ? button : null);
      return el("section", {}, head, positions.length ? el("ol", { class: "fx-ranked" }, items) : el("p", { class: "fx-muted" }, none));
    }

    tokenItem(pos) {
      const { run, differences, app } = this;
      const losses = text.losses(format.decimal(run.losses.full[pos], 2), format.decimal(run.losses.focus[pos], 2));
      return el(
        "button",
        { type: "button", class: "fx-ranked-token", "data-pos": pos, title: text.goTo(format.count(pos)), onclick: () => app.goToToken(pos) },
        el("span", { class: "fx-number fx-ranked-value" }, format.signed(differences[pos], 2)),
        el("span", { class: "fx-ranked-text" }, FX.contextLine(run, pos), el("span", { class: "fx-muted" }, `${text.at(format.count(pos))} · ${losses}`)),
      );
    }

    drawChart() {
      const { app, differences } = this;
      const { root } = app;
      const size = Math.max(15, Math.round(differences.length / 30));
      const data = [
        FX.stems(differences, (value) => value > 0, text.worseTrace, FX.cssColour(root, "worse")),
        FX.stems(differences, (value) => value < 0, text.betterTrace, FX.cssColour(root, "better")),
        meanLine(differences, size, FX.cssColour(root, "text")),
        ...FX.selectedMarks(app, differences),
      ];
      FX.draw(app, this.chart, data, this.chartLayout(), {
        hover: (point) => this.describe(point.x),
        click: (point) => app.goToToken(point.x),
      });
    }

    chartLayout() {
      const { root } = this.app;
      return FX.layout(root, {
        hovermode: "x",
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
        xaxis: FX.axis(root, text.positionAxis, { showgrid: false, range: [0, this.run.numTokens], zeroline: false, tickformat: ",d" }),
        yaxis: FX.axis(root, text.lossAxis, { zeroline: true, fixedrange: true }),
      });
    }

    describe(pos) {
      const { run, differences } = this;
      if (differences[pos] === null) return null;
      const losses = text.losses(format.decimal(run.losses.full[pos], 2), format.decimal(run.losses.focus[pos], 2));
      return FX.tokenSummary(run, pos, el("div", {}, `${losses} (${format.signed(differences[pos], 2)})`));
    }
  }

  function meanLine(differences, size, colour) {
    const half = Math.floor(size / 2);
    const sums = [0];
    const counts = [0];
    differences.forEach((value, pos) => {
      sums.push(sums[pos] + (value === null ? 0 : value));
      counts.push(counts[pos] + (value === null ? 0 : 1));
    });
    const y = differences.map((_, pos) => {
      const from = Math.max(0, pos - half);
      const to = Math.min(differences.length, pos + half + 1);
      return counts[to] > counts[from] ? (sums[to] - sums[from]) / (counts[to] - counts[from]) : null;
    });
    return { type: "scatter", mode: "lines", name: text.meanTrace(size), x: FX.range(differences.length), y, hoverinfo: "none", line: { color: colour, width: 2.5 } };
  }

  function verdict(run) {
    const kept = format.percent(run.meanKept());
    const setting = text.setting(kept, format.percent(run.meanDominance()));
    const { device, dtype, backend } = run.info;
    return [speedSentence(run), qualitySentence(run.quality), setting, text.measuredOn(device, dtype, backend)].filter((sentence) => sentence !== null);
  }

  function speedSentence(run) {
    const ratio = run.timeRatio("end_to_end");
    if (ratio === null) return text.noTiming;
    const full = run.timing("full", "end_to_end");
    const focus = run.timing("focus", "end_to_end");
    const tokens = format.count(focus.sequence_length);
    if (Math.min(full.repeats, focus.repeats) < FX.FEWEST_REPEATS) return text.tooFew(format.ratio(ratio), tokens, Math.min(full.repeats, focus.repeats));
    const overlap = full.low <= focus.high && focus.low <= full.high;
    if (overlap) return text.sameSpeed(format.ratio(ratio), tokens);
    return ratio > 1 ? text.slower(format.ratio(ratio), tokens) : text.faster(format.ratio(ratio), format.ratio(1 / ratio), tokens);
  }

  function qualitySentence(quality) {
    if (!quality) return null;
    const { delta_mean: delta, delta_low: low, delta_high: high } = quality;
    const numbers = [delta, low, high].map((value) => format.signed(value, 3));
    if (low <= 0 && high >= 0) return text.sameQuality(...numbers);
    return delta > 0 ? text.worse(...numbers) : text.better(...numbers);
  }

  function comparisonTable(run, tooltip) {
    const columns = Object.entries(text.columns).map(([name, label]) => {
      const hint = text.columnHints[name];
      return hint ? el("span", { class: "fx-column" }, label, FX.hint(tooltip, label, hint)) : label;
    });
    const table = FX.table(columns, ["full", "focus"].map((mode) => modeRow(run, mode)), { "aria-label": text.tableCaption });
    table.classList.add("fx-stacked");
    const labels = Object.values(text.columns);
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, i) => cell.setAttribute("data-label", labels[i]));
    return table;
  }

  function modeRow(run, mode) {
    const ratio = mode === "full" ? 1 : run.timeRatio("end_to_end");
    return [
      text.modes[mode],
      run.quality ? format.perplexity(run.quality[mode]) : text.none,
      run.quality ? format.count(run.quality.scored) : text.none,
      ...["end_to_end", "attention", "routing"].map((stage) => timingCell(run.timing(mode, stage))),
      ratio === null ? text.none : format.ratio(ratio),
      memory(run, mode),
    ];
  }

  function memory(run, mode) {
    const peak = Math.max(0, ...run.timings.filter((timing) => timing.mode === mode).map((timing) => timing.peak_memory_bytes || 0));
    return peak === 0 ? el("span", { class: "fx-muted" }, text.notMeasured) : FX.bytes(peak);
  }

  function timingCell(timing) {
    if (!timing) return text.none;
    const interval = text.interval(format.msNumber(timing.low), format.msNumber(timing.high), timing.repeats);
    return el("span", {}, el("span", { class: "fx-number" }, format.ms(timing.median)), el("span", { class: "fx-interval" }, interval));
  }
})();
