// The Training tab: the list of trainings, the chosen one with its progress and buttons, and the curves of up to four.
(function () {
  const el = FX.el;
  const text = FX.strings.training;
  const format = FX.format;
  const LIVE = ["running", "stopping"];
  const MOST_SHOWN = 4;
  const POLL_LIVE = 2000;
  const POLL_IDLE = 6000;
  const POLL_HIDDEN = 500;
  const MOST_POINTS = 8000;
  const MEAN_OF = 20;
  const apps = new WeakMap();

  // Touches the page only where something changed, so that focus, selection and scrolling stay where they are.
  function setText(node, value) {
    if (node.textContent !== value) node.textContent = value;
  }

  const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}${/[.…]$/.test(words) ? "" : "."}`;

  class Detail {
    constructor(app) {
      this.app = app;
      this.title = el("h2", { class: "fx-title" });
      this.status = el("span", { class: "fx-status-chip", "data-testid": "fx-training-status" });
      this.settings = el("span");
      this.facts = el("ul", { class: "fx-facts" });
      this.fill = el("span");
      this.progress = el("div", { class: "fx-run-progress", role: "progressbar", "aria-valuemin": 0 }, this.fill);
      this.times = el("p", { class: "fx-run-times" });
      this.message = el("p", { class: "fx-run-message" });
      this.validation = el("p", { class: "fx-run-validation" });
      this.stop = this.button(text.stop, "stop", () => app.act("stop"));
      this.resume = this.button(text.resume, "resume", () => app.act("resume"));
      this.use = this.button(text.use, "use", () => app.act("use"));
      const hint = FX.hint(app.tooltip, text.settingsSubject, text.settingsHint);
      const words = el("div", { class: "fx-run-words" }, el("div", { class: "fx-run-title" }, this.title, this.status), el("p", { class: "fx-settings" }, this.settings, hint), this.facts);
      this.node = el("div", { class: "fx-run" }, el("div", { class: "fx-run-head" }, words, el("div", { class: "fx-run-actions" }, this.use, this.resume, this.stop)), this.progress, this.times, this.message, this.validation);
    }

    button(label, name, pressed) {
      return el("button", { type: "button", class: "fx-button", "data-testid": `fx-training-${name}`, onclick: pressed }, label);
    }

    update(run, busy) {
      const live = LIVE.includes(run.status);
      setText(this.title, run.name);
      setText(this.status, text.statuses[run.status]);
      this.status.dataset.status = run.status;
      setText(this.settings, run.config.num_groups ? text.settings(run.config) : run.kind);
      const facts = text.facts(run, format).join("\n");
      if (facts !== this.shownFacts) this.facts.replaceChildren(...facts.split("\n").map((fact) => el("li", {}, fact)));
      this.shownFacts = facts;
      this.updateProgress(run, live);
      const message = run.status === "stopping" ? text.stopping : run.message;
      setText(this.message, message ? sentence(message) : "");
      this.message.hidden = !message;
      this.message.classList.toggle("fx-bad", run.status === "failed");
      this.updateValidation(run);
      this.stop.hidden = !live;
      this.stop.disabled = busy || run.status === "stopping";
      this.resume.hidden = !run.resumable;
      this.use.hidden = !run.usable;
      this.resume.disabled = this.use.disabled = busy;
    }

    updateProgress(run, live) {
      this.fill.style.width = `${(100 * run.step) / run.steps}%`;
      this.progress.dataset.status = run.status;
      this.progress.setAttribute("aria-valuemax", run.steps);
      this.progress.setAttribute("aria-valuenow", run.step);
      const parts = [text.progress(format.count(run.step), format.count(run.steps))];
      if (run.step > 0) parts.push((live ? text.elapsed : text.took)(format.duration(run.elapsed)));
      if (live && run.step === run.steps) parts.push(text.lastSteps);
      else if (live && run.remaining !== null) parts.push(text.remaining(format.duration(run.remaining)));
      setText(this.times, parts.join(" · "));
    }

    updateValidation({ validation }) {
      this.validation.hidden = validation.full === undefined;
      if (this.validation.hidden) return;
      const focus = Object.entries(validation.focus).map(([name, value]) => text.validationPart(name.replace("=", "\u00a0=\u00a0"), format.perplexity(value)));
      setText(this.validation, text.validation(format.count(validation.scored), format.perplexity(validation.full), focus.join(", ")));
    }
  }

  class List {
    constructor(app) {
      this.app = app;
      this.rows = new Map();
      const heads = Object.entries(text.columns).map(([name, label]) => el("th", { scope: "col", "data-column": name }, label));
      this.body = el("tbody");
      const table = el("table", { class: "fx-table fx-run-table", "data-testid": "fx-training-list" }, el("thead", {}, el("tr", {}, heads)), this.body);
      const scroll = el("div", { class: "fx-run-scroll", tabindex: "0", role: "region", "aria-label": text.listTitle }, table);
      this.node = el("section", { class: "fx-run-list" }, el("h3", { class: "fx-subtitle" }, text.listTitle), el("p", { class: "fx-help" }, text.listHint), scroll);
    }

    update(runs) {
      const wanted = new Set(runs.map((run) => run.training_id));
      for (const [id, row] of this.rows) {
        if (wanted.has(id)) continue;
        row.node.remove();
        this.rows.delete(id);
      }
      runs.forEach((run, i) => {
        if (!this.rows.has(run.training_id)) this.rows.set(run.training_id, this.makeRow(run));
        const row = this.rows.get(run.training_id);
        if (this.body.children[i] !== row.node) this.body.insertBefore(row.node, this.body.children[i] || null);
        this.updateRow(row, run);
      });
    }

    makeRow(run) {
      const id = run.training_id;
      const box = el("input", { type: "checkbox", "aria-label": text.show(run.name), onchange: () => this.app.toggle(id) });
      const swatch = el("span", { class: "fx-run-swatch", "aria-hidden": "true" });
      const name = el("button", { type: "button", class: "fx-run-name", title: text.open(run.name), onclick: () => this.app.showOnly(id) }, run.name);
      const date = el("small", { class: "fx-muted" }, format.date(run.created_at));
      const head = el("th", { scope: "row", "data-column": "name" }, el("div", { class: "fx-run-choose" }, el("label", { class: "fx-run-box" }, box, swatch), el("span", {}, name, date)));
      const chip = el("span", { class: "fx-status-chip" });
      const cells = {};
      for (const column of Object.keys(text.columns).slice(1)) cells[column] = el("td", { "data-column": column });
      cells.status.append(chip);
      return { node: el("tr", { "data-run": id }, head, Object.values(cells)), box, swatch, chip, cells };
    }

    updateRow({ node, box, swatch, chip, cells }, run) {
      const shown = this.app.shown.includes(run.training_id);
      box.checked = shown;
      box.disabled = !shown && this.app.shown.length >= MOST_SHOWN;
      swatch.style.background = shown ? this.app.colourOf(run.training_id) : "";
      node.classList.toggle("fx-chosen", run.training_id === this.app.shown[0]);
      setText(chip, text.statuses[run.status]);
      chip.dataset.status = run.status;
      setText(cells.model, run.model_id.split("/").pop());
      cells.model.title = run.model_id;
      setText(cells.groups, run.config.num_groups ? String(run.config.num_groups) : text.none);
      setText(cells.steps, text.stepOf(format.count(run.step), format.count(run.steps)));
      setText(cells.loss, run.loss === null ? text.none : format.decimal(run.loss, 3));
      setText(cells.dominance, run.dominance === null ? text.none : format.percent(run.dominance));
      setText(cells.pairs, run.retained_pairs === null ? text.none : format.percent(run.retained_pairs));
    }
  }

  class Newest {
    constructor(tooltip) {
      const heads = Object.entries(text.table.columns).map(([name, label]) => {
        const hint = text.table.hints[name];
        return el("th", { scope: "col" }, label, hint ? FX.hint(tooltip, label, hint) : null);
      });
      this.body = el("tbody");
      this.table = el("table", { class: "fx-table fx-stacked", "data-testid": "fx-training-values" }, el("caption", {}, text.table.caption(MEAN_OF)), el("thead", {}, el("tr", {}, heads)), this.body);
      this.node = el("div", { class: "fx-table-wrap fx-newest" }, this.table);
    }

    update(runs, colourOf) {
      const some = (value, show) => (value === null ? text.none : show(value));
      const percent = (value) => format.percent(value, 1);
      const labels = Object.values(text.table.columns).slice(1);
      const rows = runs.map((run) => {
        const values = [
          format.count(run.step), some(run.loss, (value) => format.decimal(value, 3)), some(run.perplexity, format.perplexity), some(run.dominance, percent),
          some(run.dominance_max, percent), some(run.retained_pairs, percent), some(run.tokens_per_second, format.count),
        ];
        return el("tr", {}, el("th", { scope: "row" }, FX.runSwatch(colourOf(run.training_id)), run.name), values.map((value, i) => el("td", { "data-label": labels[i] }, value)));
      });
      this.body.replaceChildren(...rows);
    }
  }

  class App {
    constructor(root, server, choose) {
      Object.assign(this, { root, server, choose, runs: [], shown: [], curves: new Map(), job: null, expected: null, busy: false, problem: null, silence: null, loaded: false });
      FX.installShades();
      this.tooltip = new FX.Tooltip(root);
      this.message = el("div", { class: "fx-message" }, FX.progress(text.loading));
      this.detail = new Detail(this);
      this.list = new List(this);
      this.newest = new Newest(this.tooltip);
      this.charts = new FX.TrainingCharts(this);
      this.waiting = el("p", { class: "fx-muted fx-no-curve" }, text.noCurve);
      this.content = el("div", { class: "fx-training", hidden: true }, this.list.node, this.detail.node, this.newest.node, this.waiting, this.charts.node);
      root.classList.add("fx-root");
      root.replaceChildren(this.message, this.content, this.tooltip.node);
      this.themeObserver = FX.watchTheme(root, () => this.draw());
      this.sizeObserver = new ResizeObserver(() => this.visible() && FX.resizePlots(root));
      this.sizeObserver.observe(root);
      this.poll();
    }

    dispose() {
      this.gone = true;
      clearTimeout(this.timer);
      this.themeObserver.disconnect();
      this.sizeObserver.disconnect();
    }

    visible() {
      return !document.hidden && this.root.offsetParent !== null;
    }

    // Asks only while somebody can see the answer.
    async poll() {
      clearTimeout(this.timer);
      if (this.gone) return;
      if (!this.visible()) return this.later(POLL_HIDDEN);
      if (this.asking) return undefined;
      this.asking = true;
      const asked = Object.fromEntries(this.shown.map((id) => [id, this.seen(id)]));
      const answer = await FX.ask(() => this.server.load({ shown: asked }));
      this.asking = false;
      if (this.gone) return undefined;
      if (answer.error !== undefined) {
        this.silence = answer.error;
        this.draw();
        return this.later(POLL_IDLE);
      }
      const complete = this.take(answer, asked);
      if (complete && this.visible()) this.draw();
      const live = this.runs.some((run) => LIVE.includes(run.status)) || (this.job !== null && ["starting", "stopping"].includes(this.job.state));
      return this.later(complete ? (live || this.expected ? POLL_LIVE : POLL_IDLE) : 0);
    }

    later(milliseconds) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.poll(), milliseconds);
    }

    seen(id) {
      const known = this.curves.get(id);
      return known ? Object.fromEntries(Object.entries(known.modes).map(([mode, curve]) => [mode, curve.last])) : {};
    }

    // Returns false when something that is shown has not been asked for yet, or must be asked for from the start.
    take(answer, asked) {
      this.loaded = true;
      this.silence = null;
      this.runs = answer.trainings;
      this.job = answer.job;
      if (this.problemOfPoll) this.problem = null;
      const expected = this.runs.find((run) => run.out === this.expected && LIVE.includes(run.status));
      if (expected) {
        this.expected = null;
        this.shown = [expected.training_id];
      } else if (this.expected && this.job === null && this.runs.some((run) => run.out === this.expected)) {
        this.shown = [this.runs.find((run) => run.out === this.expected).training_id];
        this.expected = null;
      } else if (this.job !== null && this.job.state !== "starting" && this.job.state !== "stopping") this.expected = null;
      const byId = new Map(this.runs.map((run) => [run.training_id, run]));
      this.shown = this.shown.filter((id) => byId.has(id));
      if (this.shown.length === 0 && this.runs.length > 0) this.shown = [(this.runs.find((run) => LIVE.includes(run.status)) || this.runs[0]).training_id];
      return this.shown.map((id) => this.takeCurve(byId.get(id), answer.curves[id], id in asked)).every(Boolean);
    }

    takeCurve(run, parts, wasAsked) {
      const known = this.curves.get(run.training_id);
      if (known === undefined || known.part !== run.part || Object.values(known.modes).some((curve) => curve.length > MOST_POINTS)) {
        const fresh = { part: run.part, modes: {} };
        this.curves.set(run.training_id, fresh);
        if (!wasAsked || known !== undefined) return false;
      }
      const { modes } = this.curves.get(run.training_id);
      for (const [mode, part] of Object.entries(parts || {})) {
        modes[mode] = modes[mode] || new FX.Curve();
        modes[mode].append(part);
      }
      return wasAsked;
    }

    colourOf(id) {
      return FX.groupColour(this.shown.indexOf(id), FX.themeOf(this.root));
    }

    draw() {
      if (!this.loaded && this.silence === null) return;
      this.tooltip.hide();
      this.drawMessage();
      this.content.hidden = this.runs.length === 0;
      if (this.content.hidden) return;
      const shown = this.shown.map((id) => this.runs.find((run) => run.training_id === id));
      this.detail.update(shown[0], this.busy);
      this.list.update(this.runs);
      this.newest.update(shown, (id) => this.colourOf(id));
      const lines = shown.flatMap((run) => Object.entries((this.curves.get(run.training_id) || { modes: {} }).modes).map(([mode, curve]) => ({ run, mode, curve, colour: this.colourOf(run.training_id) })));
      const some = lines.some((line) => line.curve.length > 0);
      this.waiting.hidden = some;
      this.charts.node.hidden = !some;
      if (some) this.charts.update(lines);
    }

    drawMessage() {
      const key = JSON.stringify([this.problem, this.silence, this.job, this.runs.length === 0, this.busy]);
      if (key === this.shownMessage) return;
      this.shownMessage = key;
      const parts = [];
      for (const problem of [this.problem, this.silence]) if (problem !== null) parts.push(FX.alert(sentence(problem)));
      if (this.job !== null) parts.push(this.jobMessage(this.job));
      if (parts.length === 0 && this.runs.length === 0) parts.push(el("div", { class: "fx-empty" }, el("h2", { class: "fx-title" }, text.empty.title), el("p", {}, text.empty.body)));
      this.message.replaceChildren(...parts);
      this.message.hidden = parts.length === 0;
    }

    jobMessage({ state, name, message }) {
      if (state === "failed") return FX.alert(text.failedStart(name, message));
      if (state === "stopped") return el("p", { class: "fx-run-note", role: "status" }, text.stoppedStart(name));
      const stop = el("button", { type: "button", class: "fx-button", disabled: state === "stopping" || this.busy, onclick: () => this.act("stop", null) }, text.stop);
      return el("div", { class: "fx-starting" }, FX.progress(state === "stopping" ? text.stoppingStart(name) : text.starting(name)), stop);
    }

    // `name` is stop, resume or use; `id` null means the training that is only starting.
    async act(name, id = this.shown[0]) {
      if (this.busy) return;
      this.busy = true;
      this.problem = null;
      this.draw();
      const answer = await FX.ask(() => this.server[name]({ id }));
      this.busy = false;
      if (answer.error !== undefined) this.problem = answer.error;
      else if (name === "use") this.choose(answer);
      else if (name === "resume") this.expected = answer.out;
      this.draw();
      this.poll();
    }

    expect(out) {
      this.expected = out;
      this.problem = null;
      this.poll();
    }

    toggle(id) {
      const others = this.shown.filter((other) => other !== id);
      if (!this.shown.includes(id)) this.shown = [...this.shown, id];
      else if (others.length > 0) this.shown = others;
      this.list.update(this.runs);
      this.poll();
    }

    showOnly(id) {
      this.shown = [id];
      this.list.update(this.runs);
      this.poll();
    }
  }

  window.FocusTraining = {
    create(root, server, choose) {
      if (apps.has(root)) apps.get(root).dispose();
      const app = new App(root, server, choose);
      apps.set(root, app);
      return { expect: (out) => app.expect(out) };
    },
  };
})();
