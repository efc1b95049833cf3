// As much of a page as the parts of a view need that are tested without a browser: elements with attributes, children
// and text. Importing it puts `document` and the observers in their places.

class Element {
  constructor(tag) {
    this.tag = tag;
    this.attributes = new Map();
    this.children = [];
    this.listeners = {};
    this.parentNode = null;
    this.hidden = false;
    this.dataset = {};
    this.style = { setProperty() {} };
    this.value = "";
    const classes = new Set();
    this.classList = {
      add: (name) => classes.add(name),
      remove: (name) => classes.delete(name),
      contains: (name) => classes.has(name),
      toggle: (name, on = !classes.has(name)) => (on ? classes.add(name) : classes.delete(name)),
    };
  }

  setAttribute(name, value) {
    this.attributes.set(name, value);
    if (name === "class") for (const one of value.split(" ")) this.classList.add(one);
    if (name === "value") this.value = value;
    if (name.startsWith("data-")) this.dataset[name.slice(5)] = value;
    if (["id", "hidden", "disabled"].includes(name)) this[name] = name === "id" ? value : true;
  }

  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }

  removeAttribute(name) {
    this.attributes.delete(name);
  }

  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }

  append(...children) {
    for (const child of children.flat()) {
      if (typeof child === "object") child.parentNode = this;
      this.children.push(child);
    }
  }

  replaceChildren(...children) {
    for (const child of this.children) if (typeof child === "object") child.parentNode = null;
    this.children = [];
    this.append(...children);
  }

  get textContent() {
    return this.children.map((child) => (typeof child === "object" ? child.textContent : String(child))).join("");
  }

  set textContent(text) {
    this.replaceChildren(...(text === "" ? [] : [text]));
  }

  /** Elements of a class, a tag, or with an attribute such as [data-pos="3"], and nothing else. */
  querySelectorAll(selector) {
    const [, name, value] = /^\[(.+)="(.*)"\]$/.exec(selector) ?? [];
    const fits = (one) => {
      if (name !== undefined) return one.getAttribute(name) === value;
      return selector.startsWith(".") ? one.classList.contains(selector.slice(1)) : one.tag === selector;
    };
    const inside = this.children.filter((child) => typeof child === "object");
    return inside.flatMap((child) => [...(fits(child) ? [child] : []), ...child.querySelectorAll(selector)]);
  }

  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }

  contains(other) {
    return other === this || this.children.some((child) => typeof child === "object" && child.contains(other));
  }

  getBoundingClientRect() {
    return { left: 0, right: 0, top: 0, bottom: 0, width: 0, height: 0 };
  }
}

class Observer {
  observe() {}
}

Object.assign(globalThis, {
  document: {
    createElement: (tag) => new Element(tag),
    createElementNS: (_, tag) => new Element(tag),
    activeElement: null,
  },
  ResizeObserver: Observer,
  IntersectionObserver: Observer,
});

/** A promise with the function that fulfils it, for answers that come when a test says so. */
export function later() {
  let answer;
  const promise = new Promise((resolve) => (answer = resolve));
  return { promise, answer };
}

/** Lets everything that waits for fulfilled promises go on. */
export const settled = () => new Promise((resolve) => setImmediate(resolve));
