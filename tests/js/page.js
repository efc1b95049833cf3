// A stand-in for the browser's page, as much of it as the views touch: elements, their listeners, and charts that only
// remember what they were given. Import it before the scripts that build elements.

class Style {
  setProperty(name, value) {
    this[name] = value;
  }
}

class ClassList {
  constructor(node) {
    this.node = node;
  }

  get names() {
    return (this.node.attributes.class ?? "").split(" ").filter(Boolean);
  }

  contains(name) {
    return this.names.includes(name);
  }

  toggle(name, on = !this.contains(name)) {
    this.node.attributes.class = [...this.names.filter((other) => other !== name), ...(on ? [name] : [])].join(" ");
  }

  add(name) {
    this.toggle(name, true);
  }

  remove(name) {
    this.toggle(name, false);
  }
}

/** One condition of a selector: tag, .class, [name] or [name=value]. */
function meets(node, condition) {
  if (condition.startsWith(".")) return node.classList.contains(condition.slice(1));
  if (!condition.startsWith("[")) return node.tagName === condition.toUpperCase();
  const [name, value] = condition.slice(1, -1).split("=");
  const found = node.attributes[name] ?? null;
  return value === undefined ? found !== null : found === value.replaceAll('"', "");
}

const matches = (node, selector) =>
  selector.split(",").some((one) => one.match(/\[[^\]]+\]|\.?[\w-]+/g).every((condition) => meets(node, condition)));

class Element {
  constructor(tag) {
    this.tagName = tag.toUpperCase();
    this.attributes = {};
    this.listeners = {};
    this.childNodes = [];
    this.parentNode = null;
    this.style = new Style();
    this.classList = new ClassList(this);
    this.dataset = new Proxy(this.attributes, {
      get: (attributes, name) => attributes[`data-${name}`],
      set: (attributes, name, value) => {
        attributes[`data-${name}`] = String(value);
        return true;
      },
      deleteProperty: (attributes, name) => delete attributes[`data-${name}`],
    });
    for (const name of ["hidden", "disabled", "checked", "open", "selected"]) {
      Object.defineProperty(this, name, {
        get: () => name in this.attributes,
        set: (on) => {
          if (on) this.attributes[name] = "";
          else delete this.attributes[name];
        },
      });
    }
    this.value = "";
    this.clientWidth = this.offsetWidth = 600;
    this.clientHeight = this.offsetHeight = 400;
  }

  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === "value") this.value = String(value);
  }

  getAttribute(name) {
    return this.attributes[name] ?? null;
  }

  removeAttribute(name) {
    delete this.attributes[name];
  }

  toggleAttribute(name, on = !(name in this.attributes)) {
    if (on) this.setAttribute(name, "");
    else this.removeAttribute(name);
    return on;
  }

  get role() {
    return this.getAttribute("role");
  }

  get tabIndex() {
    return Number(this.getAttribute("tabindex") ?? -1);
  }

  set tabIndex(value) {
    this.setAttribute("tabindex", value);
  }

  get valueAsNumber() {
    return this.value === "" ? NaN : Number(this.value);
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

  get children() {
    return this.childNodes.filter((child) => child instanceof Element);
  }

  get firstChild() {
    return this.childNodes[0] ?? null;
  }

  get textContent() {
    return this.childNodes.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  }

  set textContent(text) {
    this.replaceChildren(String(text ?? ""));
  }

  append(...nodes) {
    for (const node of nodes) {
      if (node instanceof Element) {
        if (node.parentNode) node.parentNode.childNodes = node.parentNode.childNodes.filter((one) => one !== node);
        node.parentNode = this;
      }
      this.childNodes.push(node);
    }
  }

  replaceChildren(...nodes) {
    for (const child of this.children) child.parentNode = null;
    this.childNodes = [];
    this.append(...nodes);
  }

  contains(node) {
    return node === this || this.children.some((child) => child.contains(node));
  }

  closest(selector) {
    return matches(this, selector) ? this : (this.parentNode?.closest(selector) ?? null);
  }

  querySelectorAll(selector) {
    return this.children.flatMap((child) => [
      ...(matches(child, selector) ? [child] : []),
      ...child.querySelectorAll(selector),
    ]);
  }

  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }

  addEventListener(type, listener) {
    (this.listeners[type] ??= []).push(listener);
  }

  dispatch(type, event = {}) {
    const given = { type, target: this, currentTarget: this, preventDefault() {}, stopPropagation() {}, ...event };
    return Promise.all((this.listeners[type] ?? []).map((listener) => listener(given)));
  }

  click() {
    return this.disabled ? undefined : this.dispatch("click");
  }

  focus() {
    document.activeElement = this;
  }

  select() {}

  scrollIntoView() {}

  getBoundingClientRect() {
    return { left: 0, right: 0, top: 0, bottom: 0, width: 0, height: 0 };
  }

  /** As Plotly adds to its charts. */
  on(type, listener) {
    this.addEventListener(type, listener);
  }
}

class Watcher {
  observe() {}

  disconnect() {}
}

/** What the charts were given last, by element. */
export const charts = new Map();

const Plotly = {
  react(node, data, layout) {
    node.classList.add("js-plotly-plot");
    charts.set(node, { data, layout });
    return Promise.resolve(node);
  },
  Plots: { resize: () => Promise.resolve() },
  restyle: () => Promise.resolve(),
  relayout: () => Promise.resolve(),
};

export const document = { createElement: (tag) => new Element(tag), activeElement: null, hidden: false };
document.createElementNS = (_, tag) => document.createElement(tag);
document.body = document.createElement("body");
document.head = document.createElement("head");
document.documentElement = document.createElement("html");
document.querySelector = () => null;
document.getElementById = () => document.head; // shades count as there

Object.assign(globalThis, {
  document,
  Plotly,
  window: { Plotly, location: { search: "" }, matchMedia: () => ({ matches: false, addEventListener() {} }) },
  getComputedStyle: () => ({ fontFamily: "sans-serif", getPropertyValue: () => "#102030" }),
  MutationObserver: Watcher,
  ResizeObserver: Watcher,
  IntersectionObserver: Watcher,
});

export const root = document.createElement("div");

/** Opens the page at another address, given by its query. */
export function openPage(address = "") {
  globalThis.window.location = { search: address, href: `http://page/${address}`, pathname: "/" };
  globalThis.window.history = {};
}

/** What a view needs of the explorer around it. `asked` has every question with the call that answers it. */
export function explorer(run, more = {}) {
  const asked = [];
  return {
    run,
    layerIndex: 0,
    selection: null,
    root: document.createElement("div"),
    tooltip: { show() {}, hide() {} },
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

/** Let everything go on that waits for an answer that is there. */
export const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A promise and the function that fulfils it: an answer that comes when the test says so. */
export function later() {
  let answer;
  const promise = new Promise((resolve) => (answer = resolve));
  return { promise, answer };
}

/** The buttons of an element that say something. */
export const buttonCalled = (node, words) =>
  node.querySelectorAll("button").find((button) => button.textContent.includes(words));
