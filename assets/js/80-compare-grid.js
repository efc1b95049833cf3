// Other settings of top-k and window on the run's text: a grid that fills in, and cost against loss with the baselines.
(function () {
  const el = FX.el;
  const text = FX.strings.compareSettings;
  const format = FX.format;
  const SYMBOLS = { focus: "circle", window: "square", random: "x", full: "diamond" };
  const COLOURS = { focus: "accent", window: "better", random: "worse", full: "text" };

  const nats = (value) => format.signed(value, 3);
  const timeRatio = (cell) => cell.attention_focus / cell.attention_full;
  const keyOf = (kind, topK, window) => `${kind}/${topK}/${window}`;

  FX.CompareSettings = class extends FX.ComparePart {
    constructor(app) {
      super(app, "settings", text);
      this.kind = "grid";
      this.questions = { state: "compare_grid", start: "compare_grid_start" };
      this.cost = "time";
      this.topK = el("input", { id: FX.newId("top-k"), type: "text", inputmode: "numeric", autocomplete: "off" });
      this.window = el("input", { id: FX.newId("window"), type: "text", inputmode: "numeric", autocomplete: "off" });
      this.repeats = el("input", { id: FX.newId("repeats"), type: "number", min: 1, max: 100, value: 3 });
      const field = (label, input, hint) => FX.labelled(label, input, FX.hint(app.tooltip, label, hint));
      this.form = el("form", { class: "fx-form", onsubmit: (event) => event.preventDefault() });
      this.form.append(
        field(text.topK, this.topK, text.topKHint), field(text.window, this.window, text.windowHint), field(text.repeats, this.repeats, text.repeatsHint),
        this.button(FX.strings.compareJob.start, () => this.begin()),
      );
      this.verdict = el("div", { class: "fx-verdict" });
      this.grid = el("div", { class: "fx-table-wrap fx-grid-wrap", tabindex: "0", role: "region", "aria-label": text.gridCaption });
      this.chart = el("div", { class: "fx-plot fx-pareto", role: "group", "aria-label": text.plotTitle, "data-testid": "fx-pareto" });
      this.table = FX.lazyDetails(text.table, () => this.allNumbers());
      this.results = el("div", { class: "fx-compare-results", hidden: true });
      this.results.append(
        this.verdict,
        el("div", {}, el("h4", { class: "fx-subtitle" }, text.gridTitle), el("p", { class: "fx-help" }, text.gridHint), this.grid),
        el("div", {}, el("h4", { class: "fx-subtitle" }, text.plotTitle), el("p", { class: "fx-help" }, text.plotHint), FX.choice(text.xLabel, text.x, this.cost, (cost) => this.setCost(cost)), this.chart),
        this.table,
      );
      this.nothing = el("p", { class: "fx-muted", "data-testid": "fx-grid-empty", hidden: true }, text.empty);
      this.node.append(el("p", { class: "fx-help" }, text.help), this.form, this.line.node, this.nothing, this.results);
    }

    update() {
      const theme = FX.themeOf(this.app.root);
      if (this.run !== this.app.run) {
        this.run = this.app.run;
        this.cells = null;
        this.results.hidden = this.nothing.hidden = true;
        this.watch();
      } else if (this.theme !== theme && this.cells !== null && this.cells.length > 0) this.draw();
      else if (this.busy) this.watch();
      this.theme = theme;
    }

    received(answer) {
      const first = this.cells === null;
      const stamp = JSON.stringify(answer.cells.map((cell) => [cell.kind, cell.top_k, cell.window_size, cell.measured_at]));
      this.setting = answer.setting;
      if (first) this.suggest(answer);
      this.nothing.hidden = answer.cells.length > 0 || (this.busy && this.isMine(answer.job));
      if (stamp === this.stamp && !first) return;
      this.stamp = stamp;
      this.cells = answer.cells;
      this.byKey = new Map(answer.cells.map((cell) => [keyOf(cell.kind, cell.top_k, cell.window_size), cell]));
      this.results.hidden = answer.cells.length === 0;
      if (answer.cells.length > 0) this.showCells();
    }

    suggest({ suggested }) {
      this.topK.value = suggested.top_k.join(", ");
      this.window.value = suggested.window.join(", ");
    }

    begin() {
      const values = { top_k: numbers(this.topK.value), window: numbers(this.window.value) };
      if (values.top_k === null) return this.line.fail(text.badNumbers(text.topK));
      if (values.window === null) return this.line.fail(text.badNumbers(text.window));
      this.asked = values;
      return this.start({ ...values, repeats: Number(this.repeats.value) });
    }

    showCells() {
      this.verdict.replaceChildren(...sentences(this.cells, this.byKey).map((words) => el("p", {}, words)));
      this.grid.replaceChildren(this.gridTable());
      if (this.table.open) this.table.refresh();
      if (this.open) this.draw();
    }

    gridTable() {
      const asked = this.busy && this.asked ? this.asked : { top_k: [], window: [] };
      const unique = (name, more) => [...new Set([...this.cells.map((cell) => cell[name]), ...more])].filter((value) => name !== "top_k" || value > 0).sort((a, b) => a - b);
      const ks = unique("top_k", asked.top_k);
      const rows = unique("window_size", asked.window).map((window) => [
        format.count(window),
        this.cellNode(this.byKey.get(keyOf("window", 0, window)), null),
        ...ks.map((k) => this.cellNode(this.byKey.get(keyOf("focus", k, window)), this.byKey.get(keyOf("random", k, window)))),
      ]);
      const table = FX.table([text.windowColumn, text.aloneColumn, ...ks.map(text.topKColumn)], rows, { "aria-label": text.gridCaption, "data-testid": "fx-grid" });
      table.classList.add("fx-grid");
      return table;
    }

    cellNode(cell, random) {
      if (!cell) return el("span", { class: "fx-muted" }, text.waiting);
      const own = cell.kind === "focus" && cell.top_k === this.setting.top_k && cell.window_size === this.setting.window;
      return el(
        "div",
        { class: `fx-cell${own ? " fx-own" : ""}`, "data-cell": keyOf(cell.kind, cell.top_k, cell.window_size) },
        el("strong", { class: "fx-number" }, nats(cell.delta_mean)),
        el("span", { class: "fx-interval" }, text.interval(nats(cell.delta_low), nats(cell.delta_high))),
        el("span", {}, text.pairs(format.percent(cell.retained_pairs))),
        el("span", {}, text.time(format.ratio(timeRatio(cell)))),
        random ? el("span", { class: "fx-interval" }, `${text.random}: ${nats(random.delta_mean)}, ${format.percent(random.retained_pairs)}, ${format.ratio(timeRatio(random))}`) : null,
        own ? el("span", { class: "fx-own-mark" }, text.own) : null,
      );
    }

    setCost(cost) {
      this.cost = cost;
      this.draw();
    }

    draw() {
      const { root } = this.app;
      const cost = this.cost === "time" ? timeRatio : (cell) => cell.retained_pairs;
      const series = ["window", "random", "focus"].map((kind) => this.series(kind, this.cells.filter((cell) => cell.kind === kind), cost)).filter((one) => one.x.length > 0);
      const full = { ...marks(root, "full"), x: [1], y: [0], customdata: [null] };
      const points = [...this.cells.map((cell) => [cost(cell), cell.delta_mean]), [1, 0]];
      const line = frontier(points);
      const joined = { type: "scatter", mode: "lines", name: text.frontier, x: line.map(([x]) => x), y: line.map(([, y]) => y), hoverinfo: "none", line: { dash: "dot", width: 2, color: FX.cssColour(root, "muted") } };
      const layout = FX.layout(root, {
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
        xaxis: FX.axis(root, text.xAxis[this.cost], { rangemode: "tozero", tickformat: this.cost === "pairs" ? ".0%" : "" }),
        yaxis: FX.axis(root, text.yAxis, { zeroline: true }),
      });
      FX.draw(this.app, this.chart, [joined, ...series, full], layout, { hover: (point) => describe(point.customdata) });
    }

    series(kind, cells, cost) {
      const y = cells.map((cell) => cell.delta_mean);
      const error = { type: "data", symmetric: false, thickness: 1, width: 3, array: cells.map((cell) => cell.delta_high - cell.delta_mean), arrayminus: cells.map((cell) => cell.delta_mean - cell.delta_low) };
      return { ...marks(this.app.root, kind), x: cells.map(cost), y, error_y: error, customdata: cells };
    }

    allNumbers() {
      const rows = this.cells.map((cell) => [
        text.setting(cell), text.kinds[cell.kind], format.perplexity(cell.perplexity_full), format.perplexity(cell.perplexity_focus), format.signed(cell.delta_mean, 4),
        text.interval(format.signed(cell.delta_low, 4), format.signed(cell.delta_high, 4)), format.percent(cell.retained_pairs, 1),
        cell.dominance === null ? text.noGroups : format.percent(cell.dominance, 1), format.ms(cell.attention_full), format.ms(cell.attention_focus),
        text.range(format.msNumber(cell.attention_focus_low), format.msNumber(cell.attention_focus_high)), format.ms(cell.total_full), format.ms(cell.total_focus), String(cell.repeats),
      ]);
      return FX.table(text.columns, rows, { "aria-label": text.table });
    }
  };

  function marks(root, kind) {
    const colour = FX.cssColour(root, COLOURS[kind]);
    return { type: "scatter", mode: "markers", name: text.kinds[kind], hoverinfo: "none", marker: { symbol: SYMBOLS[kind], size: 10, color: colour, line: { width: 1, color: colour } } };
  }

  // Points that no other beats in both numbers, by rising cost.
  function frontier(points) {
    const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const kept = [];
    for (const point of sorted) if (kept.length === 0 || point[1] < kept[kept.length - 1][1]) kept.push(point);
    return kept;
  }

  FX.frontier = frontier;

  function numbers(words) {
    const parts = words.split(/[\s,;]+/).filter(Boolean);
    return parts.length > 0 && parts.every((part) => /^\d+$/.test(part)) ? parts.map(Number) : null;
  }

  function describe(cell) {
    if (!cell) return el("div", { class: "fx-tooltip-head" }, text.kinds.full);
    return [
      el("div", { class: "fx-tooltip-head" }, `${text.kinds[cell.kind]}, ${text.setting(cell)}`),
      el("div", {}, `${nats(cell.delta_mean)} (${text.interval(nats(cell.delta_low), nats(cell.delta_high))})`),
      el("div", {}, text.perplexities(format.perplexity(cell.perplexity_full), format.perplexity(cell.perplexity_focus))),
      el("div", {}, text.pairs(format.percent(cell.retained_pairs, 1))),
      el("div", {}, text.times(format.ms(cell.attention_full), format.ms(cell.attention_focus), cell.repeats)),
    ];
  }

  function sentences(cells, byKey) {
    const own = cells.filter((cell) => cell.kind === "focus");
    const last = cells[cells.length - 1];
    const found = [];
    if (own.length > 0) {
      const least = (value) => own.reduce((best, cell) => (value(cell) < value(best) ? cell : best));
      const closest = least((cell) => Math.abs(cell.delta_mean));
      const quickest = least(timeRatio);
      const ends = (cell) => [nats(cell.delta_mean), nats(cell.delta_low), nats(cell.delta_high)];
      found.push(text.best(text.setting(closest), ...ends(closest), format.percent(closest.retained_pairs), format.ratio(timeRatio(closest))));
      found.push(timeRatio(quickest) < 1 ? text.quickest(text.setting(quickest), format.ratio(timeRatio(quickest)), ...ends(quickest)) : text.noneFaster);
    }
    const pairs = own.map((cell) => [cell, byKey.get(keyOf("random", cell.top_k, cell.window_size))]).filter(([, random]) => random);
    if (pairs.length > 0) {
      const better = pairs.filter(([cell, random]) => cell.delta_high < random.delta_low).length;
      const worse = pairs.filter(([cell, random]) => cell.delta_low > random.delta_high).length;
      found.push(text.againstRandom(better, worse, pairs.length));
    }
    found.push(text.measured(format.count(last.scored), last.repeats, last.device, last.dtype, text.threads(last.threads)));
    return found;
  }
})();
