// What the parts of the Compare view share: asking, watching background work, its progress line and Stop button.
(function () {
  const el = FX.el;
  const text = FX.strings.compareJob;
  const POLL = 600;
  const LIVE = ["waiting", "running", "stopping"];

  // Times repeated less often have no spread to judge a difference by.
  FX.FEWEST_REPEATS = 3;

  class JobLine {
    constructor(stop) {
      this.words = el("p", { role: "status" });
      this.fill = el("span");
      this.track = el("div", { class: "fx-job-track", role: "progressbar", "aria-label": text.waiting, hidden: true, "aria-valuemin": 0, "aria-valuemax": 100 }, this.fill);
      this.stop = el("button", { type: "button", class: "fx-button", "data-testid": "fx-compare-stop", hidden: true, onclick: stop }, text.stop);
      this.problem = el("div");
      this.node = el("div", { class: "fx-job" }, el("div", { class: "fx-job-line" }, el("div", { class: "fx-job-words" }, this.words, this.track), this.stop), this.problem);
    }

    update(job, mine) {
      const live = job !== null && LIVE.includes(job.state);
      this.node.dataset.state = job !== null && mine ? job.state : "none";
      this.words.textContent = this.sentence(job, mine, live);
      this.track.hidden = !live || !mine;
      this.stop.hidden = !live;
      this.stop.disabled = live && job.state === "stopping";
      if (!live) return;
      this.fill.style.width = `${(100 * job.fraction).toFixed(1)}%`;
      this.track.setAttribute("aria-valuenow", Math.round(100 * job.fraction));
      this.track.setAttribute("aria-label", job.stage);
    }

    sentence(job, mine, live) {
      if (job === null || (!mine && !live)) return "";
      if (live && !mine) return text.busy;
      if (job.state === "failed") return text.failed(job.message);
      if (job.state === "stopped") return text.stopped;
      if (job.state === "stopping") return text.stopping;
      if (job.state === "waiting") return text.waiting;
      return job.state === "done" ? "" : job.stage;
    }

    fail(message) {
      this.problem.replaceChildren(...(message ? [FX.alert(message)] : []));
    }
  }

  // A part asks `questions.state` when it opens and while work goes on, and `questions.start` when told to.
  FX.ComparePart = class {
    constructor(app, name, words) {
      this.app = app;
      this.job = null;
      this.node = el("section", { class: "fx-compare-part", "data-testid": `fx-compare-${name}`, hidden: true });
      this.node.append(el("h3", { class: "fx-subtitle" }, words.title));
      this.line = new JobLine(() => this.stop());
    }

    get open() {
      return !this.node.hidden && this.app.isOpen("compare");
    }

    isMine(job) {
      return job !== null && job.kind === this.kind && job.run_id === this.app.run.info.run_id;
    }

    get busy() {
      return this.job !== null && LIVE.includes(this.job.state);
    }

    async watch(what = this.questions.state, details = {}) {
      clearTimeout(this.timer);
      const { run } = this.app;
      const answer = await this.app.ask(what, details);
      if (run !== this.app.run) return;
      if (answer.error === undefined) this.take(answer);
      else {
        this.line.fail(answer.error);
        this.startButton.disabled = this.busy;
      }
      clearTimeout(this.timer);
      if (this.busy && this.open) this.timer = setTimeout(() => this.watch(), POLL);
    }

    take(answer) {
      this.line.fail(null);
      this.job = answer.job;
      this.line.update(this.job, this.isMine(this.job));
      this.startButton.disabled = this.busy;
      this.received(answer);
    }

    start(details) {
      this.startButton.disabled = true;
      return this.watch(this.questions.start, details).finally(() => {
        this.startButton.disabled = this.busy;
      });
    }

    async stop() {
      const answer = await this.app.ask("compare_stop");
      if (answer.error !== undefined) return this.line.fail(answer.error);
      this.job = answer.job;
      this.line.update(this.job, this.isMine(this.job));
      return this.watch();
    }

    // Nothing is started before it is known what is at work already.
    button(label, pressed) {
      this.startButton = el("button", { type: "button", class: "fx-button fx-primary", "data-testid": "fx-compare-start", disabled: true, onclick: pressed }, label);
      return this.startButton;
    }
  };

  FX.labelled = (label, field, hint = null) => el("div", { class: "fx-field" }, el("label", { for: field.id }, label), hint, field);

  // A few choices as one labelled drop-down.
  FX.dropdown = (label, options, chosen, changed, hint = null) => {
    const select = el("select", { id: FX.newId("select"), onchange: () => changed(select.value) }, Object.entries(options).map(([value, name]) => el("option", { value, selected: value === chosen }, name)));
    return FX.labelled(label, select, hint);
  };

  FX.bytes = (count) => {
    const step = count >= 2 ** 30 ? 3 : 2;
    return `${FX.format.decimal(count / 2 ** (10 * step), step === 3 ? 2 : 0)}\u00a0${["MiB", "GiB"][step - 2]}`;
  };

  // Tokens inside `body` by keyboard: one of them is in the tab order, arrows go on from it. `tell` gets the token that
  // has the focus, or null; `choose`, where tokens can be chosen, the one Enter or Space was pressed on.
  FX.TokenWalk = class {
    constructor(body, tell, choose = null) {
      Object.assign(this, { body, tell, choose });
      body.addEventListener("keydown", (event) => this.key(event));
      body.addEventListener("focusin", (event) => this.arrived(event.target));
      body.addEventListener("focusout", () => tell(null));
    }

    get tokens() {
      return [...this.body.querySelectorAll(".fx-pair-token")];
    }

    // After the tokens changed: the one at hand stays at hand while it is there.
    refresh() {
      const { tokens } = this;
      if (tokens.length > 0 && !tokens.some((token) => token.tabIndex === 0)) this.hold(tokens[0]);
    }

    hold(token) {
      for (const other of this.body.querySelectorAll('.fx-pair-token[tabindex="0"]')) other.tabIndex = -1;
      token.tabIndex = 0;
    }

    arrived(token) {
      if (!token.classList.contains("fx-pair-token")) return;
      this.hold(token);
      this.tell(token);
    }

    key(event) {
      const { tokens } = this;
      const at = tokens.indexOf(event.target);
      if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      const chosen = this.choose !== null && (event.key === "Enter" || event.key === " ");
      const moves = { ArrowRight: () => at + 1, ArrowLeft: () => at - 1, ArrowDown: () => lineAway(tokens, at, 1), ArrowUp: () => lineAway(tokens, at, -1), Home: () => 0, End: () => tokens.length - 1 };
      if (!chosen && !(event.key in moves)) return;
      event.preventDefault();
      if (chosen) this.choose(event.target);
      else (tokens[moves[event.key]()] || event.target).focus();
    }
  };

  // The token nearest to the one at `at`, one line further down or up; the same where there is no such line.
  function lineAway(tokens, at, step) {
    const place = (i) => tokens[i].getClientRects()[0] || tokens[i].getBoundingClientRect();
    const here = place(at);
    let best = at;
    let line = null;
    for (let i = at + step; i >= 0 && i < tokens.length; i += step) {
      const there = place(i);
      if (Math.abs(there.top - here.top) < here.height / 2) continue;
      if (line !== null && Math.abs(there.top - line) > here.height / 2) break;
      line = there.top;
      if (best === at || Math.abs(there.left - here.left) < Math.abs(place(best).left - here.left)) best = i;
    }
    return best;
  }

  // Separate strokes from zero, one path: thousands of bar elements would make the page slow.
  FX.stems = (differences, wanted, name, colour) => {
    const x = [];
    const y = [];
    differences.forEach((value, pos) => {
      if (value === null || !wanted(value)) return;
      x.push(pos, pos, null);
      y.push(0, value, null);
    });
    return { type: "scatter", mode: "lines", name, x, y, hoverinfo: "none", line: { color: colour, width: 1, simplify: false } };
  };
})();
