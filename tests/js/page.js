// A page of plain objects, as far as the views' own scripts use one: what a view shows and asks, without a browser.

/** One part of a selector: a tag, classes and attributes, as in `span.fx-own[data-pos="3"]`. */
function matches(node, selector) {
  const [tag] = selector.match(/^[a-z0-9]*/);
  const classes = [...selector.matchAll(/\.([\w-]+)/g)].map(([, name]) => name);
  const attributes = [...selector.matchAll(/\[([\w-]+)(?:="?([^"\]]*)"?)?\]/g)];
  return (
    (tag === "" || tag === node.tag) &&
    classes.every((name) => node.classList.contains(name)) &&
    attributes.every(([, name, value]) => has(node.getAttribute(name), value))
  );
}

const has = (own, value) => own !== null && (value === undefined || own === value);

class PageNode {
  constructor(tag) {
    this.tag = tag;
    this.attributes = new Map();
    this.children = [];
    this.listeners = [];
    this.style = {};
    this.value = "";
    this.clientWidth = 800;
    this.clientHeight = 500;
    this.offsetParent = null;
    this.dataset = new Proxy(
      {},
      {
        get: (_, name) => this.attributes.get(`data-${name}`),
        set: (_, name, value) => this.attributes.set(`data-${name}`, String(value)) !== null,
        deleteProperty: (_, name) => this.attributes.delete(`data-${name}`) || true,
      },
    );
    const names = () => (this.getAttribute("class") ?? "").split(" ").filter(Boolean);
    this.classList = {
      contains: (name) => names().includes(name),
      add: (name) => this.setAttribute("class", [...new Set([...names(), name])].join(" ")),
      toggle: (name, on) => {
        const others = names().filter((one) => one !== name);
        this.setAttribute("class", [...others, ...(on ? [name] : [])].join(" "));
      },
    };
  }

  setAttribute(name, value) {
    this.attributes.set(name, String(value));
    if (name === "value") this.value = String(value);
  }

  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }

  toggleAttribute(name, on) {
    if (on) this.attributes.set(name, "");
    else this.attributes.delete(name);
  }

  addEventListener(name, listener) {
    this.listeners.push([name, listener]);
  }

  dispatch(name, event = {}) {
    for (const [own, listener] of this.listeners) if (own === name) listener({ target: this, ...event });
  }

  append(...children) {
    this.children.push(...children);
  }

  replaceChildren(...children) {
    this.children = children;
  }

  get textContent() {
    return this.children.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  }

  set textContent(words) {
    this.children = [String(words)];
  }

  get valueAsNumber() {
    return this.value === "" ? NaN : Number(this.value);
  }

  get tabIndex() {
    return Number(this.getAttribute("tabindex") ?? -1);
  }

  set tabIndex(value) {
    this.setAttribute("tabindex", value);
  }

  get tBodies() {
    return this.querySelectorAll("tbody");
  }

  get rows() {
    return this.querySelectorAll("tr");
  }

  get cells() {
    return this.children;
  }

  getElementsByTagName(tag) {
    return this.querySelectorAll(tag);
  }

  querySelectorAll(selector) {
    const nodes = this.children.filter((child) => child instanceof PageNode);
    return nodes.flatMap((node) => [...(matches(node, selector) ? [node] : []), ...node.querySelectorAll(selector)]);
  }

  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }

  getBoundingClientRect() {
    return { left: 0, right: 0, top: 0, bottom: 0, width: 0, height: 0 };
  }

  click() {
    if (!this.disabled) this.dispatch("click");
  }

  closest() {
    return null;
  }

  on() {}
}

for (const name of ["hidden", "disabled", "open", "checked", "selected"]) {
  Object.defineProperty(PageNode.prototype, name, {
    get() {
      return this.attributes.has(name);
    },
    set(on) {
      this.toggleAttribute(name, on);
    },
  });
}

/** Puts the page in place of the browser's; `address` is the query of its address. */
export function openPage(address = "") {
  const Plotly = { react: async () => {}, Plots: { resize: async () => {} } };
  const location = { search: address, href: `http://page/${address}`, pathname: "/" };
  Object.assign(globalThis, {
    document: { createElement: (tag) => new PageNode(tag), createElementNS: (_, tag) => new PageNode(tag) },
    window: { location, history: {}, Plotly, matchMedia: () => ({ matches: false }) },
    Plotly,
    getComputedStyle: () => ({ fontFamily: "", getPropertyValue: (name) => name }),
    ResizeObserver: class {
      observe() {}
    },
  });
}

/** What a view needs of the explorer around it. `asked` has every question with the call that answers it. */
export function explorer(run, more = {}) {
  const asked = [];
  const tooltip = { show() {}, hide() {} };
  return {
    run,
    layerIndex: 0,
    selection: null,
    root: new PageNode("div"),
    tooltip,
    asked,
    isOpen: () => true,
    writeAddress() {},
    request: (what, details = {}) =>
      new Promise((resolve) => {
        asked.push({ what, details, answer: resolve });
      }),
    ...more,
  };
}

/** Answers a question, and waits until the view has taken it. */
export async function answer(question, value) {
  question.answer(value);
  await settled();
}

export const settled = () => new Promise((resolve) => setTimeout(resolve));

