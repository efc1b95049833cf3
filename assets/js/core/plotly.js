// @ts-check
// Loading of Plotly, which takes most of a second: the page opens without it.
import { el } from "./dom.js";
import { common } from "../strings/common.js";

/** @type {Promise<PlotlyLibrary> | null} */
let loading = null;

const plotlyAddress = () => /** @type {HTMLMetaElement} */ (document.querySelector("meta[name=fe-plotly]")).content;

// Plotly takes most of a second to start, so the page opens without it. In an idle moment it is fetched, but not run.
export const prefetchPlotly = () => {
  if (!window.Plotly && !document.querySelector("link[data-plotly]"))
    document.head.append(el("link", { rel: "prefetch", as: "script", href: plotlyAddress(), "data-plotly": "" }));
};

// Runs it: for the first chart, or as soon as somebody reaches for a tab with charts.
export const loadPlotly = () => {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  loading ??= new Promise((resolve, failed) => {
    const script = el("script", { src: plotlyAddress() });
    script.onload = () => resolve(Plotly);
    script.onerror = () => {
      loading = null;
      failed(new Error(common.plotMissing));
    };
    document.head.append(script);
  });
  return loading;
};
