// What the parts of the Compare view share: asking, watching background work, its progress line and Stop button.
(function () {
  const el = FX.el;
  const text = FX.strings.compareJob;
  const POLL = 600;
  const LIVE = ["waiting", "running", "stopping"];

  class JobLine {
    constructor(stop) {
      this.words = el("p", { role: "status" });
      this.fill = el("span");
      this.track = el("div", { class: "fx-job-track", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100 }, this.fill);
      this.stop = el("button", { type: "button", class: "fx-button", "data-testid": "fx-compare-stop", onclick: stop }, text.stop);
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
      if (answer.error !== undefined) this.line.fail(answer.error);
      else this.take(answer);
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

    button(label, pressed) {
      this.startButton = el("button", { type: "button", class: "fx-button fx-primary", "data-testid": "fx-compare-start", onclick: pressed }, label);
      return this.startButton;
    }
  };

  FX.labelled = (label, field, hint = null) => el("div", { class: "fx-field" }, el("label", { for: field.id }, label), hint, field);

  // A few choices as one labelled drop-down.
  FX.dropdown = (label, options, chosen, changed, hint = null) => {
    const select = el("select", { id: FX.newId("select"), onchange: () => changed(select.value) }, Object.entries(options).map(([value, name]) => el("option", { value, selected: value === chosen }, name)));
    return FX.labelled(label, select, hint);
  };

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
