// Small page parts shared by all views: elements, tooltip, hints, tabs, choices, status lines.
(function () {
  let lastId = 0;
  FX.newId = (prefix) => {
    lastId += 1;
    return `fx-${prefix}-${lastId}`;
  };

  // Text always goes in as text nodes: a token such as <script> must stay text.
  FX.el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  };

  // The part of a view that the address asks for, or the first one.
  FX.part = (names, first) => {
    const asked = new URLSearchParams(window.location.search).get("part");
    return names.includes(asked) ? asked : first;
  };

  // What the address says about a view; nothing when it leads to another one.
  FX.addressed = (view) => {
    const address = new URLSearchParams(window.location.search);
    return (address.get("view") || "tokens") === view ? address : new URLSearchParams();
  };

  const el = FX.el;
  const EDGE = 8;

  FX.Tooltip = class {
    constructor(root) {
      this.root = root;
      this.id = FX.newId("tooltip");
      this.node = el("div", { id: this.id, class: "fx-tooltip", role: "tooltip", hidden: true, "data-testid": "fx-tooltip" });
    }

    show(content, rect) {
      this.node.replaceChildren(...[content].flat());
      this.node.hidden = false;
      this.place(rect);
    }

    hide() {
      this.node.hidden = true;
    }

    place(rect) {
      const home = this.root.getBoundingClientRect();
      const { offsetWidth: width, offsetHeight: height } = this.node;
      const centred = rect.left + rect.width / 2 - width / 2;
      const left = Math.max(EDGE, Math.min(document.documentElement.clientWidth - width - EDGE, centred));
      const below = rect.bottom + EDGE;
      const above = rect.top - height - EDGE;
      const top = below + height > window.innerHeight && above > 0 ? above : below;
      this.node.style.left = `${left - home.left}px`;
      this.node.style.top = `${top - home.top}px`;
    }
  };

  // A question mark that explains a term on hover, focus and tap.
  FX.hint = (tooltip, subject, text) => {
    const show = (event) => tooltip.show(el("p", { class: "fx-tooltip-text" }, text), event.currentTarget.getBoundingClientRect());
    return el(
      "button",
      {
        type: "button",
        class: "fx-hint",
        "aria-label": FX.strings.hintLabel(subject),
        "aria-describedby": tooltip.id,
        onmouseenter: show,
        onfocus: show,
        onclick: show,
        onmouseleave: () => tooltip.hide(),
        onblur: () => tooltip.hide(),
      },
      "?",
    );
  };

  FX.chip = (group, extraClass = "") =>
    el("span", { class: `fx-chip ${extraClass}`.trim(), "data-shade": `g${group}` }, FX.groupLabel(group));

  FX.bar = (share, shade) =>
    el(
      "span",
      { class: "fx-bar", "data-shade": shade, "aria-hidden": "true" },
      el("span", { class: "fx-bar-fill", style: `width:${Math.min(100, share * 100).toFixed(1)}%` }),
    );

  // Radio buttons drawn as one segmented control.
  FX.choice = (label, options, chosen, changed) => {
    const name = FX.newId("choice");
    const inputs = Object.entries(options).map(([value, text]) =>
      el(
        "label",
        { class: "fx-choice-option" },
        el("input", { type: "radio", name, value, checked: value === chosen, onchange: () => changed(value) }),
        el("span", {}, text),
      ),
    );
    return el("div", { class: "fx-choice", role: "radiogroup", "aria-label": label }, el("span", { class: "fx-choice-label" }, label), el("div", { class: "fx-choice-options" }, inputs));
  };

  FX.alert = (message, retry) =>
    el(
      "div",
      { class: "fx-alert", role: "alert" },
      el("p", {}, message),
      retry ? el("button", { type: "button", class: "fx-button", onclick: retry }, FX.strings.retry) : null,
    );

  FX.progress = (message) =>
    el("div", { class: "fx-progress", role: "status" }, el("p", {}, message), el("div", { class: "fx-progress-track", "aria-hidden": "true" }, el("span")));

  FX.table = (columns, rows, attributes = {}) =>
    el(
      "table",
      { class: "fx-table", ...attributes },
      el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col" }, column)))),
      el("tbody", {}, rows.map(([head, ...cells]) => el("tr", {}, el("th", { scope: "row" }, head), cells.map((cell) => el("td", {}, cell))))),
    );

  // Long tables are built only when somebody opens them.
  FX.lazyDetails = (summary, build) => {
    const body = el("div", { class: "fx-table-scroll", tabindex: "0", role: "region", "aria-label": summary });
    const details = el("details", { class: "fx-details" }, el("summary", {}, summary), body);
    const fill = () => details.open && body.replaceChildren(build());
    details.addEventListener("toggle", fill);
    details.refresh = fill;
    return details;
  };

  FX.Tabs = class {
    constructor(names, label, selected) {
      this.selected = selected;
      this.tabs = {};
      this.panels = {};
      for (const [name, text] of Object.entries(names)) this.add(name, text);
      this.order = Object.keys(names);
      this.list = el("div", { class: "fx-tabs", role: "tablist", "aria-label": label, onkeydown: (event) => this.key(event) }, Object.values(this.tabs));
    }

    add(name, text) {
      const id = FX.newId(`tab-${name}`);
      const attributes = { type: "button", id, class: "fx-tab", role: "tab", "aria-controls": `${id}-panel`, "data-view": name };
      this.tabs[name] = el("button", { ...attributes, onclick: () => this.selected(name) }, text);
      this.panels[name] = el("div", { id: `${id}-panel`, class: "fx-panel", role: "tabpanel", "aria-labelledby": id, "data-view": name, hidden: true });
    }

    choose(name) {
      for (const other of this.order) {
        const active = other === name;
        this.tabs[other].setAttribute("aria-selected", String(active));
        this.tabs[other].tabIndex = active ? 0 : -1;
        this.panels[other].hidden = !active;
      }
    }

    key(event) {
      const at = this.order.indexOf(event.target.dataset.view);
      const last = this.order.length - 1;
      const targets = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last };
      if (!(event.key in targets)) return;
      event.preventDefault();
      const name = this.order[targets[event.key]];
      this.selected(name);
      this.tabs[name].focus();
    }
  };
})();
