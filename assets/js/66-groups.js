// The Groups tab: groups of the open layer, all groups ranked, and groups across layers.
(function () {
  const el = FX.el;
  const text = FX.strings.groups;
  const answers = new WeakMap();

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

    async update() {
      const { app } = this;
      const { run } = app;
      if (this.run === run) {
        this.show();
        return;
      }
      this.run = null;
      for (const place of Object.values(this.places)) place.hidden = true;
      this.status.replaceChildren(FX.progress(text.waiting));
      const answer = await FX.askOnce(app, "groups");
      // A closed view draws nothing; it asks again when it opens.
      if (app.run !== run || !app.isOpen("groups")) return;
      if (answer.error !== undefined) {
        this.status.replaceChildren(FX.alert(answer.error, () => this.update()));
        return;
      }
      this.run = run;
      this.data = answer;
      this.show();
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
