// Finding tokens: search in the text, and filters by group, kind of word and position. All of it happens in the browser.
(function () {
  const el = FX.el;
  const text = FX.strings.reading;
  const format = FX.format;
  const SLOW = 3000; // ms after which a regular expression is given up
  const PAUSE = 120; // ms without typing before a search begins
  const WORKER = `onmessage = ({ data }) => {
    const found = [];
    for (const hit of data.text.matchAll(new RegExp(data.source, data.flags))) if (hit[0].length > 0) found.push(hit.index, hit.index + hit[0].length);
    postMessage(found);
  };`;

  // Start and end of every match, one after the other. A pattern can take for ever, so it runs beside the page.
  function matches(source, flags, whole) {
    new RegExp(source, flags); // throws a SyntaxError here, where it can be told from a slow one
    const url = URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" }));
    const worker = new Worker(url);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("slow")), SLOW);
      worker.onmessage = ({ data }) => {
        clearTimeout(timer);
        resolve(data);
      };
      worker.onerror = () => reject(new Error("slow"));
      worker.postMessage({ text: whole, source, flags });
    }).finally(() => {
      worker.terminate();
      URL.revokeObjectURL(url);
    });
  }

  function plainMatches(words, whole) {
    const pattern = new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
    return [...whole.matchAll(pattern)].flatMap((hit) => [hit.index, hit.index + hit[0].length]);
  }

  // The search field; `changed` is told about new hits, `went` about the hit to show.
  FX.Search = class {
    constructor(app, handlers) {
      this.app = app;
      this.handlers = handlers;
      this.build();
      this.forget(null);
    }

    build() {
      const words = text.search;
      this.field = el("input", { type: "search", class: "fx-search-field", placeholder: words.placeholder, "aria-label": words.label, "data-testid": "fx-search", oninput: () => this.later(), onkeydown: (event) => this.key(event) });
      this.regex = el("input", { type: "checkbox", onchange: () => this.run() });
      this.status = el("span", { class: "fx-search-status", role: "status" });
      const step = (symbol, label, by) => el("button", { type: "button", class: "fx-step", "aria-label": label, disabled: true, onclick: () => this.step(by) }, symbol);
      this.buttons = [step("‹", words.previous, -1), step("›", words.next, 1), el("button", { type: "button", class: "fx-button", disabled: true, onclick: () => this.selectAll() }, words.selectAll)];
      this.node = el(
        "div",
        { class: "fx-search", role: "search" },
        this.field,
        el("label", { class: "fx-toggle", title: words.regex }, this.regex, el("span", { "aria-hidden": "true" }, words.regexShort), el("span", { class: "fx-hidden-label" }, words.regex)),
        this.status,
        this.buttons,
      );
    }

    // For another run: nothing is found yet, and an answer on its way counts no more.
    reset() {
      this.turn = (this.turn || 0) + 1;
      this.whole = null;
      this.field.value = "";
      this.forget(null);
    }

    // As the address has it.
    restore(address) {
      this.field.value = address.get("find") || "";
      this.regex.checked = address.has("regex");
      if (this.field.value) this.run();
    }

    get parameters() {
      const find = this.field.value || null;
      return { find, regex: find !== null && this.regex.checked ? "1" : null };
    }

    forget(problem) {
      this.hits = [];
      this.at = -1;
      this.hitTokens = new Set();
      this.buttons.forEach((button) => { button.disabled = true; });
      this.node.classList.toggle("fx-bad", problem !== null);
      this.status.textContent = problem || (this.field.value ? text.search.none : "");
    }

    later() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.run(), PAUSE);
    }

    key(event) {
      if (event.key === "Enter") {
        event.preventDefault();
        this.step(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape" && this.field.value) {
        event.stopPropagation();
        this.field.value = "";
        this.run();
      }
    }

    // Offsets of the pieces in the text they add up to.
    prepare() {
      const { pieces } = this.app.run;
      this.whole = pieces.join("");
      this.starts = new Uint32Array(pieces.length);
      for (let pos = 1; pos < pieces.length; pos += 1) this.starts[pos] = this.starts[pos - 1] + pieces[pos - 1].length;
    }

    async run() {
      const source = this.field.value;
      const turn = (this.turn = (this.turn || 0) + 1);
      if (source === "") return this.found([]);
      if (!this.whole) this.prepare();
      try {
        const bounds = this.regex.checked ? await matches(source, "gimu", this.whole) : plainMatches(source, this.whole);
        if (turn === this.turn) this.found(this.tokensOf(bounds));
      } catch (error) {
        if (turn === this.turn) this.found([], error instanceof SyntaxError ? text.search.bad : text.search.slow);
      }
      return undefined;
    }

    // First and last token of every hit; hits come in order, so one pass is enough.
    tokensOf(bounds) {
      const hits = [];
      let pos = 0;
      const { starts } = this;
      const advance = (offset) => {
        while (pos + 1 < starts.length && starts[pos + 1] <= offset) pos += 1;
        return pos;
      };
      for (let i = 0; i < bounds.length; i += 2) hits.push([advance(bounds[i]), advance(bounds[i + 1] - 1)]);
      return hits;
    }

    found(hits, problem = null) {
      this.forget(problem);
      this.hits = hits;
      this.hitTokens = new Set(hits.flatMap(([first, last]) => FX.range(last - first + 1).map((i) => first + i)));
      this.buttons.forEach((button) => { button.disabled = hits.length === 0; });
      this.handlers.changed();
      if (hits.length > 0) this.step(1);
    }

    step(by) {
      if (this.hits.length === 0) return;
      if (this.at < 0) this.at = by > 0 ? this.nextAfter(this.handlers.top()) : this.hits.length - 1;
      else this.at = (this.at + by + this.hits.length) % this.hits.length;
      this.status.textContent = text.search.status(format.count(this.at + 1), format.count(this.hits.length));
      this.handlers.went(this.hits[this.at]);
    }

    // The search begins where the reader is.
    nextAfter(pos) {
      const next = this.hits.findIndex(([first]) => first >= pos);
      return next < 0 ? 0 : next;
    }

    now() {
      return this.at < 0 ? null : this.hits[this.at];
    }

    selectAll() {
      const label = text.search.selected(this.field.value, format.count(this.hits.length));
      this.app.select(FX.selectTokens(this.hitTokens, "search", label));
    }
  };

  // Filters; `changed` is told when other tokens pass.
  FX.TokenFilter = class {
    constructor(app, changed) {
      this.app = app;
      this.changed = changed;
      this.kinds = null;
      this.build();
    }

    build() {
      const words = text.filter;
      const changed = () => this.apply();
      const number = (label) => el("input", { type: "number", class: "fx-search-field fx-short", min: 0, step: 1, "aria-label": label, onchange: changed });
      this.group = el("select", { onchange: changed });
      this.kind = el("select", { onchange: () => this.needKinds() }, option("", words.anyKind), Object.entries(words.kinds).map(([name, label]) => option(name, label)));
      [this.from, this.to] = [number(words.from), number(words.to)];
      this.mode = "dim";
      this.modes = FX.choice(words.mode, words.modes, this.mode, (mode) => { this.mode = mode; this.apply(); });
      this.summary = el("summary", {}, words.title);
      this.problem = el("p", { class: "fx-help", role: "alert" });
      const row = el(
        "div",
        { class: "fx-filter-row" },
        el("label", { class: "fx-select" }, words.group, this.group),
        el("span", { class: "fx-choice" }, el("label", { class: "fx-select" }, words.kind, this.kind), FX.hint(this.app.tooltip, words.kindSubject, words.kindHint)),
        el("span", { class: "fx-select" }, words.from, this.from, words.to, this.to),
        this.modes,
        el("button", { type: "button", class: "fx-button", onclick: () => this.selectAll() }, words.select),
        el("button", { type: "button", class: "fx-button", onclick: () => this.clear() }, words.clear),
        this.problem,
      );
      this.node = el("details", { class: "fx-details fx-filter", "data-testid": "fx-filter" }, this.summary, row);
    }

    reset() {
      this.kinds = null;
      this.group.replaceChildren(option("", text.filter.anyGroup), ...FX.range(this.app.run.numGroups).map((group) => option(String(group), FX.groupLabel(group))));
      for (const input of [this.kind, this.from, this.to]) input.value = "";
      this.count();
    }

    // As the address has it; what this run does not have is left out.
    restore(address) {
      for (const [name, input] of Object.entries(this.inputs())) {
        input.value = address.get(name) || "";
        if (input.selectedIndex < 0) input.value = "";
      }
      if (!this.active) return;
      this.node.open = true; // who follows a link did not set the filter, and must see it
      this.mode = address.get("others") === "hide" ? "hide" : "dim";
      this.modes.querySelector(`[value=${this.mode}]`).checked = true;
      this.needKinds();
    }

    get parameters() {
      const values = Object.entries(this.inputs()).map(([name, input]) => [name, input.value || null]);
      return { ...Object.fromEntries(values), others: this.active && this.mode === "hide" ? "hide" : null };
    }

    inputs() {
      return { group: this.group, kind: this.kind, from: this.from, to: this.to };
    }

    clear() {
      this.group.value = "";
      for (const input of [this.kind, this.from, this.to]) input.value = "";
      this.apply();
    }

    get active() {
      return Object.values(this.inputs()).some((input) => input.value !== "");
    }

    // The kinds of words are asked for once, when somebody first filters by them.
    async needKinds() {
      const { run } = this.app;
      this.problem.textContent = "";
      try {
        if (this.kind.value !== "" && this.kinds === null) {
          const answer = await run.once("word_classes");
          if (this.app.run !== run) return;
          this.kinds = { names: answer.names, codes: FX.decodeBase64(answer.classes) };
        }
        this.apply();
      } catch (error) {
        this.kind.value = "";
        this.problem.textContent = error.message;
      }
    }

    apply() {
      this.count();
      this.changed();
    }

    count() {
      const { run } = this.app;
      this.summary.textContent = this.active ? text.filter.active(format.count(this.positions().length), format.count(run.numTokens)) : text.filter.title;
    }

    // A function of the position: does the token pass in this layer?
    test() {
      const { run, layerIndex } = this.app;
      const tests = [];
      if (this.group.value !== "") tests.push((pos) => run.top(layerIndex, pos) === Number(this.group.value));
      if (this.kind.value !== "" && this.kinds) {
        const code = this.kinds.names.indexOf(this.kind.value);
        tests.push((pos) => this.kinds.codes[pos] === code);
      }
      if (this.from.value !== "") tests.push((pos) => pos >= Number(this.from.value));
      if (this.to.value !== "") tests.push((pos) => pos <= Number(this.to.value));
      return (pos) => tests.every((passes) => passes(pos));
    }

    positions() {
      const passes = this.test();
      const found = [];
      for (let pos = 0; pos < this.app.run.numTokens; pos += 1) if (passes(pos)) found.push(pos);
      return found;
    }

    selectAll() {
      this.app.select(FX.selectTokens(this.positions(), "search", text.filter.selected));
    }
  };

  const option = (value, label) => el("option", { value }, label);
})();
