// The Groups tab: groups of the open layer, all groups ranked, and groups across layers.
(function () {
  const el = FX.el;
  const text = FX.strings.groups;
  const WATCH_MS = 2000;
  const answers = new WeakMap();
  const measuring = new WeakMap(); // run → how far the measurement of its attention was when last asked

  // One question about a run, asked once however many views want the answer; a failure is asked again.
  FX.askOnce = async (app, what) => {
    const { run } = app;
    if (!answers.has(run)) answers.set(run, new Map());
    const known = answers.get(run);
    if (!known.has(what)) known.set(what, app.ask(what));
    const answer = await known.get(what);
    if (answer.error !== undefined) known.delete(what);
    return answer;
  };

  // Told by whoever asks for the state of the measurement. It is the one thing that changes the answer about the groups.
  FX.attentionSeen = (run, state) => measuring.set(run, state);
  FX.attentionState = (run) => measuring.get(run) || "none";

  async function askGroups(app) {
    const { run } = app;
    const answer = await FX.askOnce(app, "groups");
    if (app.run !== run || !outdated(run, answer)) return answer;
    answers.get(run).delete("groups");
    return FX.askOnce(app, "groups");
  }

  const outdated = (run, answer) => answer.attention_tokens === null && FX.attentionState(run) === "done";

  FX.GroupsView = class {
    constructor(app, panel) {
      this.app = app;
      this.section = FX.part(Object.keys(text.sections), "cards");
      this.status = el("div", { class: "fx-status" });
      this.cards = new FX.GroupCards(app);
      this.finder = new FX.GroupFinder(app);
      this.flow = new FX.GroupFlow(app);
      this.agreement = new FX.LayerAgreement(app, (first, second) => this.compare(first, second));
      this.parts = { cards: [this.cards], finder: [this.finder], layers: [this.flow, this.agreement] };
      this.places = {
        cards: this.cards.node,
        finder: this.finder.node,
        layers: el("div", { class: "fx-across" }, this.flow.node, this.agreement.node),
      };
      const changed = (value) => {
        this.section = value;
        app.writeAddress();
        this.update();
      };
      panel.append(el("div", { class: "fx-toolbar" }, FX.choice(text.show, text.sections, this.section, changed)), this.status, ...Object.values(this.places));
    }

    // For the address: nothing for the part that opens by itself.
    get part() {
      return this.section === "cards" ? null : this.section;
    }

    get parameters() {
      const own = this.finder.parameters;
      return this.section === "finder" ? own : Object.fromEntries(Object.keys(own).map((name) => [name, null]));
    }

    async update() {
      const { app } = this;
      const { run } = app;
      if (this.run === run && !outdated(run, this.data)) {
        this.show();
        this.watchAttention();
        return;
      }
      this.run = null;
      for (const place of Object.values(this.places)) place.hidden = true;
      this.status.replaceChildren(FX.progress(text.waiting));
      const answer = await askGroups(app);
      // A closed view draws nothing; it asks again when it opens.
      if (app.run !== run || !app.isOpen("groups")) return;
      if (answer.error !== undefined) {
        this.status.replaceChildren(FX.alert(answer.error, () => this.update()));
        return;
      }
      this.run = run;
      this.data = answer;
      this.show();
      this.watchAttention();
    }

    // A measurement begun in Sparsity may end while this view is open.
    async watchAttention() {
      const { app, run } = this;
      if (this.watching || FX.attentionState(run) !== "running") return;
      this.watching = true;
      const answer = await app.ask("attention");
      this.watching = false;
      if (answer.error === undefined) FX.attentionSeen(run, answer.state);
      if (this.run !== run || app.run !== run || !app.isOpen("groups")) return;
      if (outdated(run, this.data)) this.update();
      else setTimeout(() => app.isOpen("groups") && this.run === app.run && this.watchAttention(), WATCH_MS);
    }

    show() {
      this.status.replaceChildren();
      for (const [name, place] of Object.entries(this.places)) place.hidden = name !== this.section;
      for (const part of this.parts[this.section]) part.update(this.data);
    }

    selectionChanged() {
      if (this.run !== this.app.run) return;
      for (const part of this.parts[this.section]) if (part.selectionChanged) part.selectionChanged();
    }

    compare(first, second) {
      this.flow.compare(first, second);
      if (first === this.app.layerIndex) this.show();
      else this.app.setLayer(first);
      this.flow.node.scrollIntoView({ block: "start", behavior: window.matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    }
  };
})();
