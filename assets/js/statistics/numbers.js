// What the parts of the statistics view share: rows, numbers with intervals, charts with baselines, sortable tables.
(function () {
  const el = FX.el;
  const text = FX.strings.statistics;
  const format = FX.format;
  const PAUSE = 200; // ms between two questions; the server itself waits before it answers

  // Columns of numbers → objects.
  FX.statRows = (columns) => {
    const names = Object.keys(columns);
    return (columns[names[0]] || []).map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  };

  // Asks until the answer is there; `told` gets the share done. Nothing once the run changed or the view closed.
  FX.askComputed = async (app, what, details, told) => {
    const { run } = app;
    for (;;) {
      const answer = await app.ask(what, details);
      if (app.run !== run || !app.isOpen("statistics")) return null;
      if (answer.error !== undefined || answer.state !== "computing") return answer;
      told(answer.fraction);
      await new Promise((done) => setTimeout(done, PAUSE));
    }
  };

  FX.statProgress = (words) => {
    const share = el("p", { class: "fx-muted fx-stat-share" });
    const node = el("div", {}, FX.progress(words), share);
    const told = (fraction) => (share.textContent = fraction > 0 && fraction < 1 ? text.progress(format.percent(fraction)) : "");
    return { node, told };
  };

  FX.statKey = (row) => (row.category ? `${row.statistic}.${row.category}` : row.statistic);
  FX.statName = (row) => text.name(text.names[row.statistic][0], text.schemes[row.category]);

  // A tag in words, with the tag itself; word lists have words of their own.
  FX.statCategory = (scheme, category) => {
    if (!category) return text.groups.noTag;
    if (scheme === "word") return FX.shortClass(category);
    const name = text.tags[scheme][category];
    return name ? text.tag(name, category) : category;
  };

  // A share in per cent, or a number with the digits it deserves.
  FX.statNumber = (statistic, value, signed = false) => {
    if (value === null || value === undefined) return text.none;
    const digits = text.decimals[statistic];
    if (digits === undefined) return signed ? format.signedPercent(value) : format.percent(value, 1);
    return signed ? format.signed(value, digits) : format.decimal(value, digits);
  };

  FX.statInterval = (statistic, low, high, signed = false) => {
    if (low === null || low === undefined || high === null || high === undefined) return null;
    return text.interval(FX.statNumber(statistic, low, signed), FX.statNumber(statistic, high, signed));
  };

  // What a number cannot be told from, in words; null when it can.
  FX.statTold = (row) => {
    const shuffled = row.from_shuffled === "same";
    const random = row.from_random === "same";
    if (shuffled && random) return text.told.both;
    if (shuffled) return text.told.shuffled;
    if (random) return text.told.random;
    return row.from_shuffled === "below" ? text.told.below : null;
  };

  FX.statPale = (row) => row.from_shuffled === "same" || row.from_random === "same";

  FX.statCell = (statistic, value, low, high, signed = false) => [FX.statNumber(statistic, value, signed), small(FX.statInterval(statistic, low, high, signed))];
  const small = (words) => (words === null ? null : el("span", { class: "fx-interval" }, words));

  // A table whose columns sort it. `columns`: {name: [label, value of a row, cell of a row, hint or nothing]}.
  FX.StatTable = class {
    constructor(app, label, columns, attributes = {}) {
      Object.assign(this, { app, columns, sort: null, rows: [] });
      this.body = el("tbody");
      this.heads = {};
      const head = el("tr", {}, Object.keys(columns).map((name) => this.heading(name)));
      this.table = el("table", { class: "fx-table fx-stat-table", "aria-label": label, ...attributes }, el("thead", {}, head), this.body);
      this.node = el("div", { class: "fx-stat-scroll", tabindex: "0", role: "region", "aria-label": label }, this.table);
    }

    heading(name) {
      const [label, , , hint] = this.columns[name];
      const arrow = el("span", { class: "fx-sort-arrow", "aria-hidden": "true" });
      const button = el("button", { type: "button", class: "fx-sort", onclick: () => this.rank(name) }, label, arrow);
      const cell = el("th", { scope: "col" }, el("span", { class: "fx-sort-place" }, button, hint ? FX.hint(this.app.tooltip, label, hint) : null));
      this.heads[name] = { cell, arrow };
      return cell;
    }

    rank(name) {
      this.sort = { name, down: this.sort && this.sort.name === name ? !this.sort.down : name !== Object.keys(this.columns)[0] };
      this.draw();
    }

    // `mark` says what is special about a row: {class, current}.
    show(rows, mark = () => ({})) {
      Object.assign(this, { rows, mark });
      this.draw();
    }

    draw() {
      for (const [name, { cell, arrow }] of Object.entries(this.heads)) {
        const here = this.sort !== null && this.sort.name === name;
        if (here) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
        arrow.textContent = here ? (this.sort.down ? "↓" : "↑") : "";
      }
      const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.layer : undefined;
      this.body.replaceChildren(...this.ranked().map((row) => this.line(row)));
      // The rows are built anew for their marks; the keyboard stays where it was.
      const again = focused === undefined ? null : this.body.querySelector(`[data-layer="${focused}"]`);
      if (again) again.focus({ preventScroll: true });
    }

    ranked() {
      if (this.sort === null) return this.rows;
      const value = this.columns[this.sort.name][1];
      const sign = this.sort.down ? -1 : 1;
      const known = this.rows.filter((row) => value(row) !== null && value(row) !== undefined);
      return [...known.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0)), ...this.rows.filter((row) => !known.includes(row))];
    }

    line(row) {
      const mark = this.mark(row);
      const cells = Object.values(this.columns).map(([, , cell], i) => el(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {}, cell(row)));
      return el("tr", { class: mark.class, "aria-current": mark.current ? "true" : null }, cells);
    }
  };

  const clear = (hex, alpha) => `rgba(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(",")},${alpha})`;

  // How each line looks: colour name, dash, whether it has markers.
  const LINES = { window: ["border-strong", "dot", false], shuffled: ["muted", "dash", false], random: ["worse", "solid", false], value: ["accent", "solid", true] };

  // Lines with bands; `series`: {value: {y, low, high}, shuffled…}; what is missing everywhere is left out.
  FX.statTraces = (root, x, series) => {
    const traces = [];
    for (const name of Object.keys(LINES)) {
      const one = series[name];
      if (!one || one.y.every((value) => value === null || value === undefined)) continue;
      const [colour, dash, markers] = LINES[name];
      const strong = FX.cssColour(root, colour);
      if (one.low && one.low.some((value) => value !== null && value !== undefined)) traces.push(...band(x, one, clear(strong, name === "value" ? 0.22 : 0.14)));
      traces.push({ type: "scatter", mode: markers ? "lines+markers" : "lines", x, y: one.y, hoverinfo: "none", connectgaps: false, line: { color: strong, width: markers ? 2.5 : 2, dash }, marker: { color: strong, size: 7 } });
    }
    return traces;
  };

  const band = (x, { low, high }, fill) => [
    { type: "scatter", mode: "lines", x, y: low, hoverinfo: "skip", line: { width: 0 } },
    { type: "scatter", mode: "lines", x, y: high, hoverinfo: "skip", line: { width: 0 }, fill: "tonexty", fillcolor: fill },
  ];

  // What the lines are; only those that are drawn.
  FX.statLegend = (names, series) =>
    Object.keys(LINES).reverse().filter((name) => series[name] && names[name] && series[name].y.some((value) => value !== null && value !== undefined)).map((name) => el("li", {}, el("span", { class: `fx-stat-line fx-stat-line-${name}`, "aria-hidden": "true" }), names[name]));

  FX.statTip = (title, lines) => [
    el("div", { class: "fx-tooltip-head" }, el("strong", {}, title)),
    ...lines.map(([label, value]) => el("div", { class: "fx-tooltip-row" }, el("span", {}, label), el("span", { class: "fx-number" }, value))),
  ];
})();
