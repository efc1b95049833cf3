// @ts-check
// Labels and sentences of the export dialog.
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const exporting = {
  open: "Export",
  openLabel: (title) => `Export “${title}”`,
  title: "Export",
  of: (title, run) => `${title} (${run})`,
  kindLabel: "What",
  kinds: /** @type {Record<string, string>} */ ({
    table: "Table",
    mask: "Mask",
    figure: "Figure",
    bundle: "Bundle",
    report: "Report",
  }),
  help: /** @type {Record<string, string>} */ ({
    table:
      "The same rows the views draw, with the run and its setting in every row. Parquet also carries where they " +
      "come from.",
    mask:
      "Every pair of tokens that one layer's mask keeps, with what keeps it: the window, a group, both, or a sink. A " +
      "pair that is not in the file was dropped.",
    figure: "Sizes and type are set for print, on white. PDF and SVG are vectors; HTML works without a network.",
    bundle:
      "One zip file with every table, the figures, what to cite, and a manifest from which `focus-explorer rebuild` " +
      "makes the same tables again.",
    report: "A few pages to read: setting, groups, sparsity, quality, speed and caveats.",
  }),
  table: "Table",
  format: "Format",
  formats: /** @type {Record<string, string>} */ ({
    csv: "CSV",
    json: "JSON",
    parquet: "Parquet",
    latex: "LaTeX",
    markdown: "Markdown",
    npz: "SciPy (.npz)",
    pdf: "PDF",
    svg: "SVG",
    png: "PNG",
    html: "HTML",
  }),
  formatNotes: /** @type {Record<string, string>} */ ({
    latex: "At most 300 rows; choose one layer of a long table.",
    markdown: "At most 300 rows; choose one layer of a long table.",
    csv: "Text cells that a spreadsheet would run (=, +, -, @) get an apostrophe in front.",
  }),
  maskLayer: "Layer",
  maskHead: "Heads",
  maskHeads: (count) => (count === 1 ? "This head" : "Each of these heads"),
  layer: (layer) => `Layer ${layer}`,
  first: "First query token",
  last: "Last query token",
  maskSize: (which, pairs, tokens) =>
    `${which} keeps ${pairs.toLocaleString("en-US")} pairs over the whole text, tokens 0 to ` +
    `${(tokens - 1).toLocaleString("en-US")}. ` +
    (pairs > 2e7 ? "That is a large file; fewer query tokens make it smaller." : ""),
  maskNotes: /** @type {Record<string, string>} */ ({
    parquet: "Columns: query, key, cause.",
    csv: "Columns: query, key, cause.",
    npz: "scipy.sparse.load_npz gives a sparse matrix, query × key; 1 to 4 stand for window, group, both, sink.",
  }),
  figure: "Figure",
  preset: "Size",
  presetOption: (preset) => `${preset.name} (${preset.width} × ${preset.height} mm): ${preset.about}`,
  presetFree: "HTML fits the window and needs no size.",
  layerOnly: (layer) => `Only layer ${layer}`,
  layerOf: (layer) => `Of layer ${layer}, the open one.`,
  text: "Include the text",
  textHelp: {
    without:
      "Without the text: no table has rows in the order of the text, because tokens could be read back from it. " +
      "Group statistics, categories and characteristic tokens stay, and these do show single words.",
    with: "With the text: everything, also the text itself. Hand it on only if you may.",
  },
  make: "Make the file",
  making: "Making it…",
  stop: "Stop",
  stopped: "Stopped; no file was made.",
  ready: (name, size) => `${name} is ready (${size}).`,
  download: "Download",
  kept: "It starts by itself; the link works for some minutes.",
  size: (bytes) => (bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1000))} kB` : `${(bytes / 1e6).toFixed(1)} MB`),
  command: "The same bytes from the command line",
  commandAlike:
    "The same figure from the command line; PDF and SVG files also carry a time or random names, so their bytes differ",
  copy: "Copy",
  copied: "Copied",
  notCopied: "Not copied: select it instead",
  close: "Close",
  progressLabel: "Progress of the file",
  loading: "Looking at what there is…",
};
