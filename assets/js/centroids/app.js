// The Centroids tab: files as cards, what is inside one (balance, similarity), and what changed between two.
(function () {
  const el = FX.el;
  const text = FX.strings.files;
  const format = FX.format;
  const NUMBERS_FROM = 380; // pixels; in a narrower matrix its numbers would touch

  function facts(file) {
    return [text.madeFor(file.base_model || text.unnamed), text.groups(file.num_groups), text.layers(file.layers), text.dim(file.routing_dim), file.added ? text.added(format.date(file.added)) : text.shipped];
  }

  function trainedOn(training) {
    if (training.random_seed !== undefined && !training.steps) return text.untrained(training.random_seed);
    const count = (name, words) => (typeof training[name] === "number" ? words(format.count(training[name])) : null);
    const texts = Array.isArray(training.texts) ? training.texts.join(", ") : training.texts;
    const parts = [
      texts, count("training_tokens", text.tokens), count("steps", text.steps), count("tokens_seen", text.seen), count("seq_len", text.length),
      training.learning_rate !== undefined ? text.rate(training.learning_rate) : null, training.dtype,
      training.seed !== undefined ? text.seed(training.seed) : null, typeof training.seconds === "number" ? text.took(format.duration(training.seconds)) : null,
    ].filter(Boolean);
    return parts.length > 0 ? parts.join(" · ") : text.noTraining;
  }

  function heldOut(record) {
    if (!record) return [text.noHeldOut];
    const focus = Object.entries(record.focus).map(([name, found]) => text.heldOutFocus(name, format.perplexity(found.perplexity), found.retained_pairs === undefined ? null : format.percent(found.retained_pairs)));
    return [text.heldOutFull(format.perplexity(record.full), record.scored ? format.count(record.scored) : null), ...focus];
  }

  const mean = (values) => values.reduce((total, value) => total + value, 0) / values.length;

  // One run's groups: shares, the largest one and the balance, layer by layer.
  class Balance {
    constructor(app) {
      this.app = app;
      this.chart = el("div", { class: "fx-file-chart", role: "group", "aria-label": text.sharesTitle, "data-testid": "fx-file-balance" });
      this.line = el("div", { class: "fx-file-chart", role: "group", "aria-label": text.dominanceTitle, "data-testid": "fx-file-dominance" });
      this.select = el("select", { onchange: () => this.draw(), "data-testid": "fx-file-run" });
      this.words = el("p", { class: "fx-file-finding", role: "status", "data-testid": "fx-file-finding" });
      const part = (title, hint, chart) => el("div", {}, el("h4", { class: "fx-file-part" }, title, FX.hint(app.tooltip, title, hint)), chart);
      this.body = el(
        "div",
        {},
        el("label", { class: "fx-entry fx-file-select" }, el("span", {}, text.balanceRun), this.select),
        this.words,
        el("div", { class: "fx-file-charts" }, part(text.sharesTitle, text.sharesHint, this.chart), part(text.dominanceTitle, text.dominanceHint, this.line)),
      );
      this.none = el("p", { class: "fx-muted" }, text.balanceNone);
      this.node = el("section", { class: "fx-file-whole" }, el("h3", { class: "fx-subtitle" }, text.balanceTitle), el("p", { class: "fx-help" }, text.balanceHelp), this.none, this.body);
      this.rows = el("div", { class: "fx-table-scroll", tabindex: "0", role: "region", "aria-label": text.balanceTable, "data-testid": "fx-file-layers" });
      this.table = el("section", {}, el("h3", { class: "fx-subtitle" }, text.balanceTable), el("p", { class: "fx-help" }, text.balanceTableHelp), this.rows);
    }

    update(runs) {
      this.runs = runs;
      this.none.hidden = runs.length > 0;
      this.body.hidden = this.table.hidden = runs.length === 0;
      this.select.replaceChildren(...runs.map((run, i) => el("option", { value: i }, `${run.name || run.title} · ${FX.strings.runs.tokens(format.count(run.num_tokens))} · ${run.run_id}`)));
      if (runs.length > 0) this.draw();
    }

    get run() {
      return this.runs[Number(this.select.value) || 0];
    }

    get even() {
      return 1 / this.run.layers[0].shares.length;
    }

    draw() {
      this.words.textContent = this.finding();
      this.rows.replaceChildren(this.values());
      this.drawShares();
      this.drawDominance();
    }

    finding() {
      const { layers } = this.run;
      const worst = layers.reduce((most, layer) => (layer.dominance > most.dominance ? layer : most));
      const least = layers.reduce((low, layer) => (layer.balance < low.balance ? layer : low));
      const percent = (share) => format.percent(share, 1);
      return text.balanceFinding(
        [percent(mean(layers.map((layer) => layer.dominance))), percent(worst.dominance), worst.layer],
        [format.count(layers[0].shares.length), percent(this.even)],
        [format.decimal(mean(layers.map((layer) => layer.balance)), 3), format.decimal(least.balance, 3), least.layer],
      );
    }

    layerAxis() {
      return FX.axis(this.app.root, text.layerAxis, { dtick: this.run.layers.length > 12 ? 5 : 1 });
    }

    drawShares() {
      const { root } = this.app;
      const theme = FX.themeOf(root);
      const { layers } = this.run;
      const groups = layers[0].shares.map((_, group) => ({
        type: "bar", name: FX.strings.group(FX.groupLabel(group)), x: layers.map((layer) => layer.layer), y: layers.map((layer) => layer.shares[group]),
        marker: { color: FX.groupColour(group, theme) }, hoverinfo: "none",
      }));
      const layout = FX.layout(root, {
        barmode: "stack", bargap: 0.15, showlegend: false,
        xaxis: this.layerAxis(), yaxis: FX.axis(root, text.shareAxis, { tickformat: ".0%", range: [0, 1] }),
      });
      const hover = (point) => [el("strong", {}, FX.strings.sparsity.layerTitle(point.x)), el("p", {}, `${point.data.name}: ${format.percent(point.y, 1)}`), el("p", { class: "fx-muted" }, text.even(format.percent(this.even, 1)))];
      FX.draw(this.app, this.chart, groups, layout, { hover });
    }

    drawDominance() {
      const { root } = this.app;
      const { layers } = this.run;
      const x = layers.map((layer) => layer.layer);
      const line = (name, y, colour, more) => ({ type: "scatter", mode: "lines", name, x, y, hoverinfo: "none", line: { color: FX.cssColour(root, colour), width: 2, ...more } });
      const data = [
        { ...line(text.dominanceTrace, layers.map((layer) => layer.dominance), "accent"), mode: "lines+markers", marker: { size: 5 } },
        { ...line(text.evenTrace(format.count(layers[0].shares.length)), layers.map(() => this.even), "muted", { dash: "dash" }), hoverinfo: "skip" },
      ];
      const layout = FX.layout(root, {
        xaxis: this.layerAxis(), yaxis: FX.axis(root, text.shareAxis, { tickformat: ".0%", rangemode: "tozero" }),
        legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      });
      FX.draw(this.app, this.line, data, layout, { hover: (point) => this.describe(layers[point.pointNumber]) });
    }

    describe(layer) {
      const largest = layer.shares.indexOf(Math.max(...layer.shares));
      const row = (label, value) => el("div", { class: "fx-tooltip-row" }, el("span", {}, label), el("span", { class: "fx-number" }, value));
      return [
        el("div", { class: "fx-tooltip-head" }, el("strong", {}, FX.strings.sparsity.layerTitle(layer.layer))),
        row(text.largestIs(FX.groupLabel(largest)), format.percent(layer.dominance, 1)),
        row(text.evenIs, format.percent(this.even, 1)),
        row(text.balance, format.decimal(layer.balance, 3)),
      ];
    }

    values() {
      const { tooltip } = this.app;
      const columns = [text.similarityLayer, [text.dominance, FX.hint(tooltip, text.dominance, text.dominanceHint)], [text.balance, FX.hint(tooltip, text.balance, text.balanceHint)]];
      return FX.table(columns, this.run.layers.map((layer) => [String(layer.layer), format.percent(layer.dominance, 1), format.decimal(layer.balance, 3)]));
    }
  }

  class Similarity {
    constructor(app) {
      this.app = app;
      this.chart = el("div", { class: "fx-file-chart fx-file-square", "data-testid": "fx-file-similarity" });
      this.select = el("select", { onchange: () => this.draw(), "data-testid": "fx-file-layer" });
      this.words = el("p", { class: "fx-help", role: "status" });
      this.table = FX.lazyDetails(text.similarityTable, () => this.values());
      this.node = el(
        "section",
        {},
        el("h3", { class: "fx-subtitle" }, text.similarityTitle),
        el("p", { class: "fx-help" }, text.similarityHelp),
        el("label", { class: "fx-entry fx-file-select" }, el("span", {}, text.similarityLayer), this.select),
        this.words,
        this.chart,
        this.table,
      );
    }

    update(layers) {
      this.layers = layers;
      this.select.replaceChildren(...layers.map((layer, i) => el("option", { value: i }, String(layer.layer))));
      this.select.value = String(Math.floor(layers.length / 2));
      this.draw();
    }

    get matrix() {
      return this.layers[Number(this.select.value)].similarity;
    }

    draw() {
      const { root } = this.app;
      const { matrix } = this;
      const labels = matrix.map((_, group) => FX.groupLabel(group));
      const colour = (name) => FX.cssColour(root, name);
      const scale = [[0, colour("better")], [0.5, colour("bg")], [1, colour("worse")]];
      const data = [{
        type: "heatmap", x: labels, y: labels, z: matrix, zmin: -1, zmax: 1, colorscale: scale, hoverinfo: "none", xgap: 1, ygap: 1,
        text: matrix.map((row) => row.map((value) => (matrix.length <= 10 && this.chart.clientWidth >= NUMBERS_FROM ? value.toFixed(2) : ""))), texttemplate: "%{text}", textfont: { size: 11 },
        colorbar: { thickness: 10, outlinewidth: 0, tickvals: [-1, 0, 1] },
      }];
      const axis = { showgrid: false, zeroline: false, type: "category", fixedrange: true };
      const layout = FX.layout(root, { xaxis: FX.axis(root, "", axis), yaxis: FX.axis(root, "", { ...axis, autorange: "reversed" }) });
      const hover = (point) => el("p", { class: "fx-tooltip-text" }, text.similarityHover(point.y, point.x, format.decimal(point.z, 2)));
      FX.draw(this.app, this.chart, data, layout, { hover });
      let most = [0, 0, -2];
      matrix.forEach((row, i) => row.forEach((value, j) => i < j && value > most[2] && (most = [i, j, value])));
      this.words.textContent = most[2] > -2 ? text.mostAlike(FX.groupLabel(most[0]), FX.groupLabel(most[1]), format.decimal(most[2], 2)) : "";
      this.table.refresh();
    }

    values() {
      const labels = this.matrix.map((_, group) => FX.groupLabel(group));
      return FX.table(["", ...labels], this.matrix.map((row, i) => [labels[i], ...row.map((value) => format.decimal(value, 2))]));
    }
  }

  class Changes {
    constructor(app) {
      this.app = app;
      this.turn = 0;
      const select = (label, test) => {
        const node = el("select", { "data-testid": test });
        return [node, el("label", { class: "fx-entry" }, el("span", {}, label), node)];
      };
      const [first, firstField] = select(text.first, "fx-file-first");
      const [second, secondField] = select(text.second, "fx-file-second");
      Object.assign(this, { first, second });
      this.button = el("button", { type: "button", class: "fx-button fx-primary", "data-testid": "fx-file-compare", onclick: () => this.compare() }, text.compare);
      this.form = el("div", { class: "fx-file-pair" }, firstField, secondField, this.button);
      this.need = el("p", { class: "fx-muted" }, text.needTwo);
      this.output = el("div", { "aria-live": "polite" });
      this.node = el("section", { class: "fx-file-changes" }, el("h2", { class: "fx-title" }, text.compareTitle), this.need, this.form, this.output);
    }

    update(files) {
      const usable = files.filter((file) => !file.problem);
      this.need.hidden = usable.length > 1;
      this.form.hidden = usable.length < 2;
      [this.first, this.second].forEach((select, i) => {
        const kept = select.value;
        select.replaceChildren(...usable.map((file) => el("option", { value: file.sha256 }, `${file.name} (${file.sha256.slice(0, 8)})`)));
        select.value = usable.some((file) => file.sha256 === kept) ? kept : (usable[i] || usable[0] || { sha256: "" }).sha256;
      });
    }

    async compare() {
      const turn = (this.turn += 1);
      const answer = await FX.ask(() => this.app.server.compare({ first: this.first.value, second: this.second.value }));
      if (turn !== this.turn) return;
      if (answer.error !== undefined) this.output.replaceChildren(FX.alert(sentence(answer.error)));
      else this.show(answer);
    }

    show(answer) {
      this.answer = answer;
      const value = (found) => (found === null || found === undefined ? text.none : String(found));
      const rows = answer.settings.map(([name, a, b]) => [name.replaceAll("_", " "), value(a), value(b)]);
      const settings = rows.length === 0 ? el("p", { class: "fx-muted" }, text.noDifference) : el("div", { class: "fx-table-wrap" }, FX.table([text.settingColumn, ...answer.names], rows));
      this.chart = el("div", { class: "fx-file-chart", "data-testid": "fx-file-distance" });
      const missing = answer.layers.reduce((sum, layer) => sum + layer.unmatched[0].length + layer.unmatched[1].length, 0);
      const distance = answer.problem
        ? [FX.alert(sentence(answer.problem))]
        : [
            el("h3", { class: "fx-subtitle" }, text.distanceTitle),
            el("p", { class: "fx-help" }, text.distanceHelp),
            missing ? el("p", { class: "fx-help" }, text.unmatched(format.count(missing))) : "",
            this.chart,
            FX.lazyDetails(text.pairsTable, () => this.pairs()),
          ];
      this.output.replaceChildren(el("h3", { class: "fx-subtitle" }, text.settingsTable), settings, ...distance);
      this.draw();
    }

    draw() {
      if (!this.answer || this.answer.problem) return;
      const { root } = this.app;
      const { layers } = this.answer;
      const x = layers.map((layer) => layer.layer);
      const line = (name, key, colour, extra) => ({ type: "scatter", mode: "lines+markers", name, x, y: layers.map((layer) => layer[key]), hoverinfo: "none", line: { color: FX.cssColour(root, colour), width: 2, ...extra }, marker: { size: 5 } });
      const data = [line(text.meanTrace, "mean", "accent"), line(text.worstTrace, "worst", "worse", { dash: "dot" }), line(text.nullTrace, "null", "muted", { dash: "dash" })];
      const layout = FX.layout(root, { xaxis: FX.axis(root, text.layerAxis), yaxis: FX.axis(root, text.distanceAxis, { rangemode: "tozero" }), legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 } });
      const hover = (point) => [el("strong", {}, FX.strings.sparsity.layerTitle(point.x)), el("p", {}, `${point.data.name}: ${format.decimal(point.y, 3)}`)];
      FX.draw(this.app, this.chart, data, layout, { hover });
    }

    pairs() {
      const rows = this.answer.layers.flatMap((layer) => layer.pairs.map(([a, b, distance]) => [String(layer.layer), FX.groupLabel(a), FX.groupLabel(b), format.decimal(distance, 3)]));
      return FX.table(text.pairColumns(...this.answer.names), rows);
    }
  }

  const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}${/[.…]$/.test(words) ? "" : "."}`;

  class App {
    constructor(root, server) {
      Object.assign(this, { root, server, files: [], turn: 0 });
      FX.installShades();
      this.tooltip = new FX.Tooltip(root);
      this.message = el("div", { class: "fx-message" }, FX.progress(text.loading));
      this.list = el("ul", { class: "fx-files", "aria-label": text.listLabel });
      this.inside = el("div", { class: "fx-file-inside", "aria-live": "polite", hidden: true });
      this.balance = new Balance(this);
      this.similarity = new Similarity(this);
      this.changes = new Changes(this);
      this.content = el("div", { hidden: true }, this.list, this.inside, this.changes.node);
      root.replaceChildren(this.message, this.content, this.tooltip.node);
      root.addEventListener("keydown", (event) => event.key === "Escape" && this.tooltip.hide());
      this.themeObserver = FX.watchTheme(root, () => this.redraw());
      this.sizeObserver = new ResizeObserver(() => root.offsetParent !== null && FX.resizePlots(root));
      this.sizeObserver.observe(root);
      this.load();
    }

    async load() {
      const answer = await FX.ask(() => this.server.load());
      this.message.hidden = answer.error === undefined;
      if (answer.error !== undefined) {
        this.message.replaceChildren(FX.alert(sentence(answer.error), () => this.load()));
        return;
      }
      this.files = answer.files;
      this.content.hidden = false;
      this.list.replaceChildren(...this.files.map((file) => this.card(file)));
      this.changes.update(this.files);
    }

    card(file) {
      const head = [el("h3", { class: "fx-subtitle" }, file.name), el("ul", { class: "fx-facts" }, facts(file).map((fact) => el("li", {}, fact)))];
      const setting = el("p", { class: "fx-settings" }, text.setting(file.config), FX.hint(this.tooltip, text.settingSubject, text.settingHint));
      if (file.problem) return el("li", { class: "fx-file-card" }, head, FX.alert(sentence(file.problem)));
      const look = el("button", { type: "button", class: "fx-button", "aria-label": text.lookLabel(file.name), "data-testid": "fx-file-look", onclick: () => this.look(file) }, text.look);
      return el(
        "li",
        { class: "fx-file-card", "data-file": file.sha256 },
        head,
        setting,
        el("dl", {}, el("dt", {}, text.trainedOn), el("dd", {}, trainedOn(file.training)), el("dt", {}, text.heldOut, FX.hint(this.tooltip, text.heldOut, text.heldOutHint)), heldOut(file.held_out).map((line) => el("dd", {}, line))),
        el("div", { class: "fx-file-foot" }, look, el("code", { class: "fx-muted" }, file.sha256.slice(0, 16))),
      );
    }

    async look(file) {
      const turn = (this.turn += 1);
      this.inside.hidden = false;
      this.inside.replaceChildren(FX.progress(text.looking(file.name)));
      const answer = await FX.ask(() => this.server.detail({ file: file.sha256 }));
      if (turn !== this.turn) return;
      if (answer.error !== undefined) {
        this.inside.replaceChildren(FX.alert(sentence(answer.error), () => this.look(file)));
        return;
      }
      this.shown = answer;
      this.inside.replaceChildren(el("h2", { class: "fx-title", tabindex: "-1" }, text.inside(file.name)), el("div", { class: "fx-file-charts" }, this.balance.node, this.similarity.node, this.balance.table));
      this.balance.update(answer.runs);
      this.similarity.update(answer.layers);
      this.inside.firstChild.focus({ preventScroll: true });
      this.inside.scrollIntoView({ block: "start", behavior: window.matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    }

    redraw() {
      if (this.root.offsetParent === null) return;
      if (this.shown) {
        if (this.shown.runs.length > 0) this.balance.draw();
        this.similarity.draw();
      }
      this.changes.draw();
    }
  }

  window.FocusFiles = {
    create(root, server) {
      const app = new App(root, server);
      return { load: () => app.load() };
    },
  };
})();
