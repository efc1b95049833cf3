// @ts-check
// Creation of elements with attributes, listeners and children.

let lastId = 0;

export const newId = (prefix) => {
  lastId += 1;
  return `fx-${prefix}-${lastId}`;
};

// Text always goes in as text nodes: a token such as <script> must stay text.
export const el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};

// Touches the page only where something changed, so that focus, selection and scrolling stay where they are.
export function setText(node, value) {
  if (node.textContent !== value) node.textContent = value;
}
