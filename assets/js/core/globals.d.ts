// What the browser scripts find on the page.

/** What the scripts call of plotly.js, which brings no types of its own. */
interface PlotlyLibrary {
  react: (node: HTMLElement, data: object[], layout: object, config: object) => Promise<unknown>;
  relayout: (node: HTMLElement, change: object) => Promise<unknown>;
  restyle: (node: HTMLElement, change: object, traces: number[]) => Promise<unknown>;
  Plots: { resize: (node: HTMLElement) => Promise<unknown> };
}

declare var Plotly: PlotlyLibrary;

interface Window {
  Plotly?: PlotlyLibrary;
}

interface Uint8ArrayConstructor {
  fromBase64?: (text: string) => Uint8Array<ArrayBuffer>;
}

// The explorer's root elements hold HTML elements alone; SVG is drawn by the flow chart only.
interface ParentNode {
  querySelector<E extends Element = HTMLElement>(selectors: string): E | null;
  querySelectorAll<E extends Element = HTMLElement>(selectors: string): NodeListOf<E>;
}
