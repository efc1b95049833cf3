// What the browser scripts find on the page.

declare var Plotly: any;

interface Window {
  Plotly?: any;
}

interface Uint8ArrayConstructor {
  fromBase64?: (text: string) => Uint8Array<ArrayBuffer>;
}

// The explorer's root elements hold HTML elements alone; SVG is drawn by the flow chart only.
interface ParentNode {
  querySelector<E extends Element = HTMLElement>(selectors: string): E | null;
  querySelectorAll<E extends Element = HTMLElement>(selectors: string): NodeListOf<E>;
}
