// @ts-check
// Labels and sentences of the Sparsity view.
import { counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** Of tokens from a first to a last one, as `sparsity.range` has them. @param {string} span */
const queries = (span) => `${span.includes("–") ? "queries" : "query"} ${span}`;

/** @param {string} span */
const keys = (span) => `${span.includes("–") ? "keys" : "key"} ${span}`;

/** @param {string} first @param {string} last */
const range = (first, last) => (first === last ? first : `${first}–${last}`);

/** @param {number} sinks */
const sink = (sinks) => (sinks === 1 ? "the first token" : `one of the first ${sinks} tokens`);

/** @satisfies {Words} */
export const sparsity = {
  waiting: "Counting the pairs of this layer…",
  show: "Show",
  kinds: {
    kept: "Share of pairs kept",
    main: "Most frequent cause",
    local_only: "Near (window)",
    group_only: "Same group",
    local_and_group: "Near and same group",
    sink_only: "Sink",
    dropped: "Dropped",
  },
  causes: {
    local_only: "near (window)",
    group_only: "same group",
    local_and_group: "both",
    sink_only: "sink",
    dropped: "dropped",
  },
  windows: (first, last) => (first === last ? first : `${first} (${last} at the end: windows grow)`),
  causeHints: (windows, sinks, slidingWindow) => ({
    local_only: `Kept because the two tokens are at most ${windows} apart`,
    group_only: "Kept because the two tokens share a group",
    local_and_group: "Near each other and in a shared group",
    sink_only: `Kept because the key is ${sinks === 0 ? "a sink: this run has none" : sink(sinks)}`,
    dropped:
      slidingWindow === null
        ? "Not computed"
        : `Not computed; this layer never looks farther back than ${slidingWindow} tokens, with or without Focus`,
  }),
  fullHints: (windows) => ({
    local_only: "Kept: full attention",
    group_only: `Kept: full attention, more than ${windows} tokens apart`,
    local_and_group: `Kept: full attention, at most ${windows} tokens apart`,
    sink_only: "Kept: full attention",
    dropped: "Not computed, with or without Focus",
  }),
  maskTitle: (layer, heads) => `Which pairs layer ${layer}${heads ? `, ${heads},` : ""} computes`,
  maskHint:
    "Each cell is a block of token pairs: the query token (down) looks back at the key token (across). The upper " +
    "half is empty because no token sees later ones.",
  layersTitle: "Pairs kept in every layer",
  layersHint: "Click a bar to go to that layer, or a number in the table below.",
  query: "query token",
  key: "key token",
  layerAxis: "layer",
  keptAxis: "share of pairs",
  blockTitle: (q0, q1, k0, k1) => `${queries(range(q0, q1))}, ${keys(range(k0, k1))}`,
  layerTitle: (layer) => `Layer ${layer}`,
  pairs: (count, percent) => `${count} (${percent})`,
  scaleLow: "0\u00a0%",
  scaleHigh: "100\u00a0% of the block's pairs",
  layerTable: "The same numbers as a table: pairs per layer",
  rowTable: "The same numbers as a table: this layer by block of query tokens",
  layerColumn: "Layer",
  queryColumn: "Query tokens",
  keptColumn: "Kept",
  range,
};

/** @satisfies {Words} */
export const pairs = {
  zoom: {
    toolbar: "Zoom of the mask",
    in: "Zoom in",
    out: "Zoom out",
    whole: "Whole mask",
    help:
      "Drag a rectangle to look closer, down to single pairs of tokens. Ctrl and scroll, pinch, or the keys + and − " +
      "work too; 0 shows the whole mask.",
    level: (rows, keys, size) =>
      `Queries ${rows}, keys ${keys}. ` +
      `${size === "1" ? "Each cell is one pair of tokens." : `Each cell is ${size} × ${size} pairs.`}`,
    clickLabel: "A click selects",
    clicks: { block: "Block", row: "Its queries", column: "Its keys" },
    failed: (problem) => `This part of the mask cannot be shown: ${problem}`,
    block: (rows, columns) => `${queries(rows)} and ${keys(columns)}`,
    row: queries,
    column: keys,
    pair: (query, key) => `tokens ${query} and ${key}`,
    query: "Query",
    key: "Key",
    fullReason: (distance) => `Kept: full attention, ${distance} apart`,
    beyond: (distance, window) => `Dropped: ${distance} apart, beyond the layer's own window of ${window}`,
    inGroups: (groups) => `both are in group${groups.includes(",") ? "s" : ""} ${groups}`,
    inOneGroup: "both are in one group",
    linked: "linked by hand",
    reasons: {
      local_only: (distance, shared, config) => `Kept: ${distance} apart, within the window of ${config.window}`,
      group_only: (distance, shared) => `Kept: ${shared}, ${distance} apart`,
      local_and_group: (distance, shared, config) =>
        `Kept twice over: ${distance} apart, within the window of ${config.window}, and ${shared}`,
      sink_only: (distance, shared, config) => `Kept: the key is ${sink(config.num_sinks)}`,
      dropped: (distance) => `Dropped: ${distance} apart and no shared group`,
    },
    tokensApart: (count) => counted(count, "token"),
  },

  arranged: {
    title: "The same pairs, sorted by group",
    help:
      "Attention is computed group by group: sorted that way, the pairs that groups keep lie in blocks on the " +
      "diagonal, and what the window and the sinks add lies between them. The strips show each token's group; a cell " +
      "is the fuller the more of its pairs are kept.",
    label: "Arrange",
    orders: { text: "As the text", group: "By group", packed: "Work left" },
    notes: {
      text: "Queries down, keys across, both in the order of the text.",
      group: "Queries and keys in the order of their groups, the order of the text within each.",
      packed:
        "Each query's kept keys pushed to the left: what is empty below the diagonal is work that full attention " +
        "does and Focus does not.",
    },
    kept: (count, percent, of, note) =>
      `${counted(count, "pair")} ${count === "1" ? "is" : "are"} kept, ${percent} of ${of}. ${note}`,
    all: "all",
    groups: "Groups, with their shares of the tokens:",
    first: (count) => `those of the first ${count} tokens, which the picture shows`,
    picture: (layer, order, kept) => `Pairs of layer ${layer}, arranged: ${order}. ${kept}`,
  },

  cursor: {
    help:
      "With the keyboard: on the picture, Enter shows a cursor. The arrows move it, Enter selects its cell, Escape " +
      "leaves it. Shift and the arrows move the picture.",
    none: "No pairs: no token sees a later one.",
    part: (cause, pairs) => `${cause} ${pairs}`,
    block: (title, parts) => `Cursor on ${title}: ${parts}.`,
    pair: (query, queryToken, key, keyToken, reason) =>
      `Cursor on query token ${query} “${queryToken}” and key token ${key} “${keyToken}”. ${reason}.`,
  },

  causesSubject: "near, same group, both, sink and dropped",

  tables: {
    openLayer: (layer) => `Go to layer ${layer}`,
    selectRow: (rows) => `Select ${queries(rows)}`,
  },

  nulls: {
    shuffled: "random groups of the same sizes",
    shuffledHint:
      "What would be kept, on average, if all tokens swapped their groups at random: the groups keep their sizes " +
      "and lose their meaning. Calculated exactly, nothing is drawn.",
    windowOnly: "window and sinks only",
    windowOnlyHint:
      "What would be kept without any groups. Heads with full attention count with the window, as if they had none " +
      "of it.",
    layersHint:
      "Diamonds: random groups of the same sizes. Dashed line: window and sinks only, heads with full attention " +
      "counted with the window.",
  },

  distance: {
    title: "Pairs kept by distance",
    help:
      "How far the query looks back, in tokens, and which share of the pairs at that distance is computed. The " +
      "distances double with every second bar; no bar lies on both sides of a window, unless windows grow with the " +
      "text.",
    show: "Show",
    scopes: { layer: "This layer", mean: "Mean over layers" },
    waiting: "Counting pairs by distance…",
    axis: "distance in tokens",
    share: "share of pairs kept",
    bin: (first, last) => (first === last ? first : `${first}–${last}`),
    binTitle: (bin, pairs) => `${counted(bin, "token")} apart, ${counted(pairs, "pair")}`,
    binTitleMean: (bin, pairs, layers) =>
      `${counted(bin, "token")} apart, ${counted(pairs, "pair")} in ` +
      `${layers === "1" ? "the one layer" : `each of ${layers} layers`}`,
    span: "least and most of any layer",
    range: (low, high) => `${low} to ${high}`,
    far: (kept, shuffled, full) =>
      `Beyond window and sinks ${full ? "groups, and heads with full attention, keep" : "the groups keep"} ${kept} ` +
      `of the pairs; with random groups of the same sizes it would be ${shuffled}. How many pairs are kept follows ` +
      "from the sizes almost alone; whether they are the right ones is what “Attention kept” measures.",
    plotLabel: (scope) => `Pairs kept by distance, ${scope}`,
    table: "The same numbers as a table: pairs by distance",
    distanceColumn: "Distance",
  },

  attention: {
    title: "Attention kept",
    hint:
      "Not all pairs matter alike. Full attention gives each earlier token a probability; this is the share of that " +
      "probability that falls on pairs the mask keeps. It is the unchanged model's own full attention, with no pair " +
      "dropped in any layer before.",
    waiting: "Looking for a measurement…",
    invite: (tokens) =>
      "How much of full attention lies inside the mask has not been measured for this run. It takes one more pass " +
      `of the model over ${tokens} tokens and is stored with the run.`,
    cut: (tokens, whole) =>
      `Only the first ${tokens} of the ${whole} tokens are measured, because the cost grows with the square of the ` +
      "length. No token sees a later one, so for those tokens nothing would differ.",
    commandHint: "From the command line: focus-explorer analyze FILE --attention",
    measure: "Measure attention mass",
    stop: "Stop",
    again: "Try again",
    progressLabel: "Progress of the measurement",
    show: "Show",
    kinds: { mass_kept: "All attention", distant_mass_kept: "Distant attention" },
    kindHint: "Distant attention leaves out what window and sinks keep anyway: it shows what the groups are worth.",
    layer: "layer",
    head: "head",
    mean: "mean",
    shuffled: "random groups",
    windowOnly: "window only",
    plotLabel: "Share of full attention kept, by layer and head",
    cell: (layer, head) => `Layer ${layer}, head ${head}`,
    meanCell: (layer) => `Layer ${layer}, mean of all heads`,
    nullCell: (layer, name) => `Layer ${layer}, ${name}`,
    parts: { local: "near (window)", sinks: "sink", grouped: "same group", dropped: "dropped" },
    partCauses: { local: "local_only", sinks: "sink_only", grouped: "group_only", dropped: "dropped" },
    inFull: "full attention",
    groupOrFull: "same group or full attention",
    kept: "kept",
    scaleHigh: "100\u00a0% kept",
    distantKept: "of the distant attention",
    none: "none",
    summary: (kept, shuffled, window, full) =>
      `The mask keeps ${kept} of full attention's probability. Random groups of the same sizes would keep ` +
      `${shuffled}, window and sinks alone ${window}` +
      `${full ? ", with the heads that have full attention counted with the window" : ""}.`,
    summaryDistant: (kept, shuffled, full) =>
      "Of the attention beyond window and sinks " +
      `${full ? "groups, and heads with full attention, keep" : "the groups keep"} ${kept}; with random groups of ` +
      `the same sizes it would be ${shuffled}.`,
    noneDistant: "No attention falls beyond window and sinks here: groups have nothing to keep.",
    denominator: (layers, heads, tokens) =>
      `Means over ${counted(layers, "layer")}, ${counted(heads, "head")} and ${tokens} query positions.`,
    denominatorCut: (layers, heads, tokens, whole) =>
      `Means over ${counted(layers, "layer")}, ${counted(heads, "head")} and the first ${tokens} of ${whole} query ` +
      "positions.",
    clickHint: "Click a cell to go to its layer and see that head's links.",
    table: "The same numbers as a table: attention kept by layer and head",
  },

  links: {
    title: (layer) => `Strongest single links of layer ${layer}`,
    hint:
      "A link is one query token looking back at one key token, in one head, further than the window and not at a " +
      "sink. The percentage is the part of that query's attention which full attention spends on that one token. " +
      "Click a link to see both tokens in the text.",
    kinds: { dropped: "What Focus drops", kept: "What Focus keeps" },
    kindHelp: { dropped: "No shared group: these are lost.", kept: "A shared group, or a head with full attention." },
    head: "Head",
    allHeads: "All heads",
    headNumber: (head) => `Head ${head}`,
    waiting: "Loading the links…",
    none: { dropped: "This layer drops no link.", kept: "This layer keeps no link beyond window and sinks." },
    noneOfHead: { dropped: "This head drops no link.", kept: "This head keeps no link beyond window and sinks." },
    details: (distance, head, affinity) => [`${distance} apart`, head, `affinity ${affinity}`],
    oneHead: (head) => `head ${head}`,
    fullHead: (head) => `head ${head}, full attention`,
    affinity: "Next to it stands how alike the groups of the two tokens are, their affinity.",
    affinitySubject: "affinity",
    affinityTitle:
      "Group affinity: the probability that both tokens fall into the same group, if each drew its group from its " +
      "own probabilities",
    query: "reads",
    key: "from",
    open: (query, key, percent) => `Show tokens ${query} and ${key}, ${percent}, in the text`,
    label: (query, key) => `link from token ${query} to ${key}`,
    shown: (count) => `The ${count} strongest`,
  },
};
