// The tokens a person chose, wherever they chose them; every view highlights the same ones. Knows nothing of the page.
(function () {
  const LONGEST_IN_ADDRESS = 4000; // characters; a longer selection is kept in this browser under a short name
  const STORED = "fx-selection-";
  const BASE = 36;

  // `origin` says how it was chosen: kind ("token", "range", "group", "lasso", "block", "row", "search", "tokens") and,
  // for a group, its layer and index; `label` is shown in the bar above the views.
  FX.Selection = class {
    constructor(positions, origin) {
      this.positions = Uint32Array.from(positions).sort();
      this.origin = origin;
      this.set = null;
    }

    get size() {
      return this.positions.length;
    }

    has(pos) {
      if (this.set === null) this.set = new Set(this.positions);
      return this.set.has(pos);
    }

    // The same tokens, however they were chosen.
    equals(other) {
      if (!other || other.size !== this.size) return false;
      return this.positions.every((pos, i) => pos === other.positions[i]);
    }

    // Runs of neighbouring tokens: [first, last].
    ranges() {
      const found = [];
      for (const pos of this.positions) {
        const last = found[found.length - 1];
        if (last && last[1] === pos - 1) last[1] = pos;
        else found.push([pos, pos]);
      }
      return found;
    }
  };

  FX.selectToken = (pos) => new FX.Selection([pos], { kind: "token", label: FX.strings.selection.token(FX.format.count(pos)) });

  FX.selectRange = (first, last) => {
    const [low, high] = first < last ? [first, last] : [last, first];
    const label = FX.strings.selection.range(FX.format.count(low), FX.format.count(high));
    return new FX.Selection(FX.range(high - low + 1).map((i) => low + i), { kind: "range", label });
  };

  FX.selectGroup = (run, layerIndex, group) => {
    const positions = FX.range(run.numTokens).filter((pos) => run.top(layerIndex, pos) === group);
    const layer = run.layerIds[layerIndex];
    return new FX.Selection(positions, { kind: "group", layer, group, label: FX.strings.selection.group(FX.groupLabel(group), layer) });
  };

  FX.selectTokens = (positions, kind, label) => new FX.Selection(positions, { kind, label });

  // In the address: "g4.2" for group 2 of layer 4, "t" and runs of tokens as gap and length, "s" and the name of one kept
  // in this browser.
  FX.encodeSelection = (selection) => {
    if (selection === null) return null;
    if (selection.origin.kind === "group") return `g${selection.origin.layer}.${selection.origin.group}`;
    let end = 0;
    const parts = selection.ranges().map(([first, last]) => {
      const part = last === first ? (first - end).toString(BASE) : `${(first - end).toString(BASE)}-${(last - first).toString(BASE)}`;
      end = last;
      return part;
    });
    const code = `t${parts.join("_")}`;
    return code.length <= LONGEST_IN_ADDRESS ? code : keep(code);
  };

  FX.decodeSelection = (code, run) => {
    if (!code) return null;
    const group = /^g(\d+)\.(\d+)$/.exec(code);
    if (group) {
      const index = run.layerIds.indexOf(Number(group[1]));
      return index >= 0 && Number(group[2]) < run.numGroups ? FX.selectGroup(run, index, Number(group[2])) : null;
    }
    const whole = code.startsWith("s") ? recall(code) : code;
    return whole && /^t[0-9a-z_-]+$/.test(whole) ? fromRuns(whole.slice(1), run) : null;
  };

  function fromRuns(runs, run) {
    const positions = [];
    let end = 0;
    for (const part of runs.split("_")) {
      const [gap, length] = part.split("-").map((number) => parseInt(number, BASE));
      const first = end + gap;
      end = first + (length || 0);
      for (let pos = first; pos <= end && pos < run.numTokens; pos += 1) positions.push(pos);
    }
    if (positions.length === 0 || positions.some(Number.isNaN)) return null;
    if (positions.length === 1) return FX.selectToken(positions[0]);
    const whole = positions[positions.length - 1] - positions[0] === positions.length - 1;
    if (whole) return FX.selectRange(positions[0], positions[positions.length - 1]);
    return new FX.Selection(positions, { kind: "tokens", label: FX.strings.selection.tokens });
  }

  function keep(code) {
    let hash = 0;
    for (let i = 0; i < code.length; i += 1) hash = (Math.imul(hash, 31) + code.charCodeAt(i)) >>> 0;
    const name = `s${hash.toString(BASE)}`;
    try {
      window.localStorage.setItem(STORED + name, code);
    } catch {
      return null; // private browsing: the selection works, it only does not survive a reload
    }
    return name;
  }

  function recall(name) {
    try {
      return window.localStorage.getItem(STORED + name);
    } catch {
      return null;
    }
  }

  // One line above the views: what is selected, and how to let go of it.
  FX.SelectionBar = class {
    constructor(cleared) {
      this.label = FX.el("span", { class: "fx-selected-label" });
      this.button = FX.el("button", { type: "button", class: "fx-button", onclick: cleared }, FX.strings.selection.clear);
      this.node = FX.el("div", { class: "fx-selected", role: "status", "data-testid": "fx-selection" }, this.label, this.button);
      this.update(null);
    }

    // The bar keeps its height, so that choosing a token never moves the token.
    update(selection) {
      this.node.classList.toggle("fx-selected-none", selection === null);
      this.button.style.visibility = selection === null ? "hidden" : "";
      if (selection === null) this.label.replaceChildren(FX.strings.selection.none, FX.el("span", { class: "fx-selected-help" }, FX.strings.selection.help));
      else this.label.textContent = FX.strings.selection.bar(selection.origin.label, FX.format.count(selection.size));
    }
  };
})();
