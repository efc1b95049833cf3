// What the browser scripts find on the page.

declare var Plotly: any;

interface Window {
  Plotly?: any;
}

interface Uint8ArrayConstructor {
  fromBase64?: (text: string) => Uint8Array<ArrayBuffer>;
}
