// @ts-check
// Labels and sentences of the Compare view, by its parts.
import { common, counted } from "./common.js";
/** @import { Words } from "./words.js" */

/** @satisfies {Words} */
export const overview = {
  notMeasured: "not measured",
  tableCaption: "Focus and full attention on this text",
  columns: {
    mode: "Mode",
    perplexity: "Perplexity",
    scored: "Scored tokens",
    endToEnd: "End to end",
    attention: "Attention alone",
    routing: "Routing",
    ratio: "Time against full",
    memory: "Peak memory",
  },
  columnHints: /** @type {Record<string, string>} */ ({
    endToEnd: "One whole forward pass: median, then lowest to highest, then the number of repeats",
    attention: "The attention operation only, all layers",
    routing: "Finding each token's groups; full attention does not need it",
    ratio: "End-to-end median divided by that of full attention",
    memory:
      "Largest memory until the run was measured: of the whole process on a CPU, of what was given out on a GPU. " +
      "Model and text are in it, and both ways of attention ran in one process, so it bounds both rather than " +
      "telling them apart.",
  }),
  modes: { full: "Full attention", focus: "Focus" },
  interval: (low, high, repeats) => (repeats === 1 ? "timed once" : `${low}–${high} ms, ${repeats} repeats`),
  none: "–",
  times: (ratio) => `${ratio}×`,
  slower: (ratio, tokens) =>
    `Focus took ${ratio} the time of full attention on this text: at ${tokens} tokens sparse attention does not pay ` +
    "yet.",
  faster: (ratio, speedup, tokens) =>
    `Focus took ${ratio} the time of full attention on this text: at ${tokens} tokens it is ${speedup} as fast.`,
  sameSpeed: (ratio, tokens) =>
    `Focus took ${ratio} the time of full attention at ${tokens} tokens; the repeats overlap, so this is no clear ` +
    "difference.",
  tooFew: (ratio, tokens, repeats) =>
    `Focus took ${ratio} the time of full attention at ${tokens} tokens, but each was timed only ` +
    `${repeats === 1 ? "once" : `${repeats} times`}: too few to call one faster.`,
  noTiming: "Speed was not measured in this run.",
  worse: (delta, interval) => `Its predictions are worse: ${delta} nats per token (${interval}).`,
  better: (delta, interval) => `Its predictions are better: ${delta} nats per token (${interval}).`,
  sameQuality: (delta, interval) =>
    `Its predictions are neither clearly better nor worse: ${delta} nats per token (${interval}).`,
  setting: (kept, dominance) =>
    `Speed and loss belong to this setting: ${kept} of pairs kept, and a layer's largest group has ${dominance} of ` +
    "the tokens on average.",
  measuredOn: (device, dtype, backend) => `All layers together, measured on ${device}, ${dtype}, ${backend} backend.`,
  lossTitle: "Where Focus helps and hurts",
  lossHint:
    "Loss with Focus minus loss with full attention, in nats, for every token. Bars above zero: Focus predicts that " +
    "token worse.",
  lossAxis: "loss difference (nats)",
  positionAxis: "token position",
  worseTrace: "Focus worse",
  betterTrace: "Focus better",
  meanTrace: (size) => `mean of up to ${counted(size, "token")}`,
  hurt: "Hurt most",
  helped: "Helped most",
  noneHurt: "No token is predicted worse.",
  noneHelped: "No token is predicted better.",
  goTo: (pos) => `Show token ${pos} in the text`,
  at: (pos) => `token ${pos}`,
  losses: (full, focus) => `${full} → ${focus} nats`,
  why: "Why?",
  whyToken: (pos) => `Why is token ${pos} predicted worse?`,
};

/** @satisfies {Words} */
export const parts = {
  label: "Compare with",
  names: {
    overview: "Full attention",
    links: "Missing links",
    heads: "Heads",
    whatIf: "What if",
    settings: "Other settings",
    runs: "Another run",
    lengths: "Longer texts",
    generation: "Generated text",
  },
};

/** @satisfies {Words} */
export const selection = {
  mean: (mean, count, rest) =>
    `Selected tokens: Focus loses ${mean} nats per token on average over ${count} scored ` +
    `${count === "1" ? "token" : "tokens"}${rest === null ? "" : `; all others: ${rest}`}.`,
  none: "None of the selected tokens is scored: the first token of a text has nothing before it.",
  trace: "selected",
  choose: "Select these",
  label: { hurt: "tokens hurt most", helped: "tokens helped most" },
};

/** @satisfies {Words} */
export const job = {
  start: "Start",
  stop: "Stop",
  stopping: "Stopping at the next step…",
  left: (stage, time) => `${stage}, about ${time} left`,
  waiting: "Waiting for the model: another computation is using it…",
  stopped: "Stopped. Nothing of it is kept.",
  stoppedKept: /** @type {Record<string, string>} */ ({
    grid: "Stopped. What was measured is kept.",
    lengths: "Stopped. What was measured is kept.",
    generation: "Stopped. What was written stays.",
  }),
  failed: (message) => `${message.slice(0, 1).toUpperCase()}${message.slice(1)}.`,
  busy: "Another comparison is being measured; stop it or wait for it.",
  loading: "Loading…",
};

/** @satisfies {Words} */
export const settings = {
  title: "Speed and predictions at other settings",
  help:
    "This run's text is measured again at every top-k and window you name, with this run's model and centroids, and " +
    "with two baselines nobody trained. Full attention and Focus take turns at every setting, so speed and " +
    "predictions always belong together.",
  budget:
    "Heads with a setting of their own keep it at every top-k and window; heads with full attention stay full, also " +
    "in “Window and sinks only”.",
  topK: "Top-k",
  topKHint: "How many groups a token belongs to; more groups keep more pairs",
  window: "Window",
  windowHint: "Tokens at most this far apart always attend to each other, except in heads with another window",
  repeats: "Repeats",
  repeatsHint: "How often each time is measured; the median is shown",
  cost: (settings, time) =>
    `${counted(settings, "setting")}, with random centroids and the window alone: ` +
    `about ${time}, by the times of this run.`,
  badNumbers: (name) => `${name} needs whole numbers such as 1, 2.`,
  empty: "Nothing is measured yet. Press Start: every cell fills in as soon as it is done and is kept with the run.",
  gridTitle: "Every setting",
  gridHint:
    "Each cell: loss difference to full attention in nats per token with its 95 % interval, pairs kept, attention " +
    "time with routing and the whole pass against full attention in the same cell. Below it the same for random " +
    "centroids.",
  gridCaption: "Loss difference, pairs kept and attention time by window and top-k",
  windowColumn: "Window",
  aloneColumn: "Window and sinks only",
  topKColumn: (k) => `Top-k ${k}`,
  own: "this run's setting",
  random: "random",
  waiting: "not measured",
  pairs: (share) => `${share} of pairs`,
  time: (ratio) => `${ratio} the attention time`,
  overlap: " (repeats overlap)",
  tooFew: (repeats) => ` (timed ${repeats === 1 ? "once" : "twice"})`,
  whole: (ratio) => `${ratio} the whole pass`,
  kinds: {
    focus: "Focus, this run's centroids",
    window: "Window and sinks only",
    random: "Random centroids",
    full: "Full attention",
  },
  shortSetting: (cell) => (cell.top_k ? `k ${cell.top_k}, w ${cell.window_size}` : `w ${cell.window_size}`),
  setting: (cell) => (cell.top_k ? `top-k ${cell.top_k}, window ${cell.window_size}` : `window ${cell.window_size}`),
  best: (setting, delta, interval, pairs, time, hedge) =>
    `Closest to full attention with this run's centroids: ${setting}, ${delta} nats per token (${interval}), ` +
    `with ${pairs} of pairs and ${time} the attention time${hedge}.`,
  quickest: (setting, time, delta, interval) =>
    "Least attention time of those clearly faster than full attention, with this run's centroids: " +
    `${setting}, ${time} its time, at ${delta} nats per token (${interval}).`,
  noneFaster:
    "At no measured setting is Focus' attention clearly faster than full attention on this text: it is slower, or " +
    "the repeats overlap, or there are fewer than three.",
  wholePass: (faster, count) =>
    `The whole pass, attention and all the rest, took less time in ${faster} of ` +
    `${counted(count, "setting")} (medians).`,
  againstRandom: (better, worse, count) =>
    `Against random centroids at the same setting: clearly better in ${better} of ` +
    `${counted(count, "setting")}, clearly worse in ${worse} (intervals do not overlap).`,
  measured: (scored, repeats, device, dtype, threads) =>
    `${counted(scored, "scored token")}; ${counted(repeats, "timed repeat")}; ${device}, ${dtype}, ${threads}. ` +
    "Intervals: blocks of neighbouring tokens, resampled.",
  threads: (count) => counted(count, "thread"),
  plotTitle: "Speed and perplexity at the same setting",
  plotHint:
    "Every point is one measured setting, labelled with its top-k (k) and window (w) where there is room. Down is " +
    "better, left is cheaper. The height is full attention's perplexity times the exponential of the loss " +
    "difference; bars are the 95 % interval of that difference, so full attention, the dashed line, has none. The " +
    "dotted line joins the settings that no other measured setting beats in both, baselines and full attention " +
    "included.",
  xLabel: "Cost",
  x: { time: "Attention time", pairs: "Pairs kept" },
  xAxis: /** @type {Record<string, string>} */ ({
    time: "attention time, full attention = 1",
    pairs: "share of pairs kept",
  }),
  yAxis: "perplexity",
  yAxisLog: "perplexity (logarithmic)",
  fullLine: (perplexity) => `full attention: ${perplexity}`,
  fullPoint: (perplexity) => `perplexity ${perplexity}, attention time and pairs set to 1`,
  difference: (delta, interval) => `${delta} nats per token (${interval})`,
  perplexityRange: (low, high) => `${low} to ${high} by the interval of the difference`,
  frontier: "not beaten by any other",
  table: "All numbers as a table",
  columns: [
    "Setting",
    "Kind",
    "Perplexity, full",
    "Perplexity, Focus",
    "Difference (nats)",
    "95 % interval",
    "Pairs kept",
    "Largest group",
    "Attention, full",
    "Attention, Focus",
    "Lowest to highest",
    "Whole pass, full",
    "Whole pass, Focus",
    "Repeats",
  ],
  perplexities: (full, focus) => `perplexity ${full} → ${focus}`,
  times: (full, focus, repeats) => `attention ${full} → ${focus}, median of ${repeats}`,
  range: (low, high) => `${low}–${high} ms`,
  noGroups: "–",
};

/** @satisfies {Words} */
export const runs = {
  title: "This run and another",
  help:
    "Choose another stored run of exactly these tokens: other centroids, another checkpoint or another setting; any " +
    "two runs can be chosen in the Runs tab. Groups have no names of their own, so in every layer the other run's " +
    "groups are matched with this run's (Hungarian method: as many tokens as possible in matched groups).",
  none:
    "There is no other run of exactly these tokens. Explore the same text with other centroids or another setting; " +
    "it then appears here.",
  choose: "Other run",
  pick: "Choose a run",
  notFound: (message) => `The run of this link cannot be shown: ${message}`,
  elsewhere: (side) => `${side.name || side.title} (another text)`,
  option: (run) =>
    `${run.name ? `${run.name}: ` : ""}${run.centroids_name}, top-k ${run.config.top_k}, window ` +
    `${run.config.window}${common.growing(run.config)}, K = ${run.config.num_groups}` +
    `${common.exceptions(run.config)}, ${run.date}`,
  agreement: (changed, count, layer, overlap, rand) =>
    `In layer ${layer}, ${changed} of ${count} tokens (by their top group) ${changed === "1" ? "is" : "are"} in ` +
    `another group: ${overlap} in matched groups, adjusted Rand index ${rand}.`,
  mean: (overlap, rand, layers, all) =>
    layers === 1
      ? `In the one layer both have, ${overlap} of tokens are in matched groups, adjusted Rand index ${rand}.`
      : `Over ${all ? `all ${layers} layers` : `the ${layers} layers both have`}: ${overlap} of tokens in matched ` +
        `groups, adjusted Rand index ${rand}, on average.`,
  noLayer: (layer) => `The other run has no groups in layer ${layer}.`,
  noGroup: "no group",
  identical: "The two runs put every token of this layer into the same group.",
  worse: (delta, interval, count) =>
    `The other run predicts worse: ${delta} nats per token (${interval}, ${counted(count, "scored token")}).`,
  better: (delta, interval, count) =>
    `The other run predicts better: ${delta} nats per token (${interval}, ${counted(count, "scored token")}).`,
  same: (delta, interval, count) =>
    `Neither predicts clearly better: ${delta} nats per token (${interval}, ${counted(count, "scored token")}).`,
  randHint:
    "Counts pairs of tokens that both runs put together or apart, corrected for agreement of random groupings: 1 is " +
    "the same partition, about 0 is no more agreement than theirs. Matched groups alone look better, because the " +
    "matching picks the best names.",
  randSubject: "the adjusted Rand index",
  chartTitle: "Agreement in every layer",
  chartHint: "Click a point to go to that layer.",
  overlap: "tokens in matched groups",
  rand: "adjusted Rand index",
  layerAxis: "layer",
  agreementAxis: "agreement",
  textTitle: "The text in both",
  textHint:
    "Colours are this run's groups. Dotted underline: the other run puts this token into another group. Choose a " +
    "token to select it everywhere; with the keyboard, arrows go from token to token and Enter chooses.",
  own: "This run",
  other: "The other run, groups matched",
  unmatched: "a group without a partner",
  selectChanged: "Select changed tokens",
  changedLabel: (layer) => `tokens that changed group in layer ${layer}`,
  earlier: "Earlier",
  later: "Later",
  page: (first, last, count) => `tokens ${first}–${last} of ${count}`,
  lossTitle: "Where the other run predicts better or worse",
  lossHint:
    "Loss of the other run minus loss of this one, in nats, for every token. Above zero: the other run predicts " +
    "that token worse.",
  lossAxis: "loss difference (nats)",
  positionAxis: "token position",
  worseTrace: "other run worse",
  betterTrace: "other run better",
  spoken: (piece, pos, own, other) => `${piece}, token ${pos}: group ${own} here, ${other} there`,
  token: (pos, own, other) => `token ${pos}: ${own} here, ${other} there`,
  losses: (own, other, difference) => `${own} → ${other} nats (${difference})`,
};

// Two runs of different texts.
/** @satisfies {Words} */
export const numbers = {
  caption: "Numbers of both runs",
  differentTexts: (first, second) =>
    `These two runs are of different texts (${first} and ${second} tokens): no token of one is a token of the ` +
    "other, so their groups cannot be matched token by token.",
  caution:
    "Perplexities of different texts say which text is easier to predict; compare what Focus loses on each instead.",
  columns: ["Number", "This run", "The other run"],
  rows: /** @type {Record<string, string>} */ ({
    text: "Text",
    run: "Run",
    tokens: "Tokens",
    model: "Model",
    centroids: "Centroids",
    full: "Perplexity, full attention",
    focus: "Perplexity, Focus",
    loss: "Loss difference",
    pairs: "Pairs kept",
    far: "Distant pairs kept",
    largest: "Largest group",
    endToEnd: "End to end",
    attention: "Attention alone",
    routing: "Routing",
    memory: "Peak memory",
    device: "Measured on",
  }),
  hints: /** @type {Record<string, string>} */ ({
    loss:
      "Mean loss of Focus minus that of full attention on the same text, in nats per token; above zero Focus " +
      "predicts worse",
    pairs: "Share of all pairs of a token and an earlier one (or itself) that Focus keeps, mean over layers",
    far:
      "Of the pairs beyond window and sinks, the share kept because both tokens share a group or the head has full " +
      "attention, mean over the heads that have such pairs and over layers",
    largest: "Share of the tokens in the largest group, mean over layers",
    endToEnd: "One whole forward pass, median: full attention, then Focus",
    attention: "The attention operation only, all layers, median: full attention, then Focus",
    routing: "Finding each token's groups, all layers, median",
  }),
  differ: "differs",
  sameSettings: "No setting differs.",
  both: (full, focus) => `${full} → ${focus}`,
  nats: (value) => `${value} nats`,
  none: "not measured",
};

/** @satisfies {Words} */
export const lengths = {
  title: "From which length is Focus faster?",
  help:
    "One attention layer of this run's model is timed at 256, 512, 1,024, … tokens on this machine, called as the " +
    "model calls it, with groups in the shares they have in the open layer of this run, at the run's setting. The " +
    "inputs are random numbers, and the groups stand in random order.",
  time: "Time to spend",
  budgets: { 10: "10 s", 30: "30 s", 120: "2 min", 600: "10 min" },
  start: (layer) => `Measure layer ${layer}`,
  empty: (layer) => `Layer ${layer} is not measured yet.`,
  crossing: (layer, tokens, below, above) =>
    `With the groups of layer ${layer}, Focus overtakes full attention at about ${tokens} tokens (interpolated ` +
    `between the measured ${below} and ${above}).`,
  fromStart: (layer, shortest, longest) =>
    `With the groups of layer ${layer}, Focus is faster at every measured length, ${shortest} to ${longest} tokens.`,
  never: (layer, longest) =>
    `With the groups of layer ${layer}, Focus does not overtake full attention up to ${longest} tokens, the longest ` +
    "measured; nothing is claimed beyond.",
  mixed: (layer, longest) =>
    `With the groups of layer ${layer}, Focus is faster at some measured lengths but slower at ${longest} tokens, ` +
    "the longest; no length can be named from which it stays faster.",
  fasterAtOne: (layer, tokens) =>
    `With the groups of layer ${layer}, Focus is faster at ${tokens} tokens, the only measured length.`,
  slowerAtOne: (layer, tokens) =>
    `With the groups of layer ${layer}, Focus is not faster at ${tokens} tokens, the only measured length; nothing ` +
    "is claimed beyond.",
  unclear: "At the longest length the repeats of the two overlap, so this may not hold.",
  atLongest: (tokens, full, focus, ratio) =>
    `At ${tokens} tokens: full attention ${full}, Focus with routing ${focus} (${ratio} the time).`,
  setting: (setting, { repeats, device, dtype, threads, backend }) =>
    `${setting}. ${counted(repeats, "repeat")}, median with lowest and highest; ${device}, ` +
    `${dtype}, ${threads}, ${backend} backend.`,
  threads: (count) => counted(count, "thread"),
  full: "full attention",
  focus: "Focus with routing",
  lengthAxis: "tokens",
  timeAxis: "milliseconds for one layer",
  crossingMark: (tokens) => `≈ ${tokens} (interpolated)`,
  columns: ["Tokens", "Full attention", "Focus attention", "Routing", "Pairs kept", "Focus against full"],
  table: "The measured points as a table",
  span: (median, low, high) => `${median} ms (${low}–${high})`,
};

/** @satisfies {Words} */
export const heads = {
  title: "Which heads pay for the mask?",
  help:
    "For every key-value head, what the loss would be if that head alone had full attention: a forward " +
    "and a backward pass estimate it for all heads at once, to first order. The ten heads with the largest estimates " +
    "are then really given full attention, one at a time. It takes about half a minute at 1,000 tokens.",
  start: "Measure heads",
  again: "Measure them again",
  loss: (lost, tokens, all) =>
    `Focus changes the loss by ${lost} thousandths of a nat per token on average` +
    (tokens === all ? "." : `, over the first ${tokens} of ${all} tokens.`),
  first: (place, won) => `Most is won in ${place}: with full attention there alone, ${won} thousandths less.`,
  sum: (count, won) =>
    count === 1
      ? "No other measured head wins anything alone."
      : `The ${count} measured heads that win alone add up to ${won}; together they may win more or less.`,
  noneWins: "None of the measured heads wins anything alone: the loss is spread over many.",
  plotLabel: "What every head would win alone, by layer and head",
  chart:
    "Thousandths of a nat per token that the loss falls with full attention in one head alone; measured values where " +
    "there are some. A head that would not win has the colour of zero. Press a cell to go to its layer and head.",
  colourBar: "thousandths of a nat",
  head: "key-value head",
  layer: "layer",
  cell: (layer, head) => `layer ${layer}, head ${head}`,
  none: "not measured",
  tableTitle: "Measured heads, changes of the loss in thousandths of a nat per token",
  tableLabel: "Measured heads",
  columns: {
    place: "Head",
    measured: "Measured",
    estimated: "Estimated",
    dropped: "Full attention that the mask drops",
  },
};

/** @satisfies {Words} */
export const links = {
  title: "Why is a token predicted worse?",
  help:
    "Of all token pairs that the mask drops before a token, those are found that would have helped to predict it: a " +
    "forward and a backward pass give the effect of adding each pair to first order. The ten that promise most are " +
    "then really added, one at a time and all together, and the model is run on from there.",
  token: "Token (position)",
  start: "Find missing links",
  again: "Find them again",
  known: "Explained so far:",
  stored: (full, focus) => `${full} nats with full attention, ${focus} with Focus.`,
  noToken: (last) => `Choose a token from 1 to ${last}.`,
  loss: (piece, pos, full, focus) =>
    `“${piece}” (token ${pos}): ${full} nats with full attention, ${focus} with Focus.`,
  added: (count, together) =>
    count === 1
      ? `One dropped link, added, brings it to ${together} nats`
      : `${count} dropped links, added together, bring it to ${together} nats`,
  explains: (gained, lost) => `: that explains ${gained} of the ${lost} nats that Focus loses.`,
  explainsMore: (gained, lost) => `, ${gained} less: more than the ${lost} nats that Focus loses.`,
  gains: (gained) => `, ${gained} less, although Focus does not predict this token worse.`,
  noGain: (count) => (count === 1 ? ": it wins nothing." : ": together they win nothing."),
  single: (sum, overlap) =>
    `Added one at a time they gain ${sum} nats in sum${overlap ? ": they partly do the same work" : ""}.`,
  baselines: (kept, count) =>
    count === 1
      ? "Window and sinks alone would have dropped it; random groups of the same shape would have " +
        (kept === 1 ? "kept it." : "dropped it, too.")
      : `Window and sinks alone would have dropped all ${count}; random groups of the same shape would have kept ` +
        `${kept}.`,
  found: (pairs) =>
    `${pairs} dropped ${pairs === "1" ? "pair was" : "pairs were"} compared, over all layers and heads.`,
  none: (pairs) =>
    pairs === "0"
      ? "The mask drops no pair before this token."
      : pairs === "1"
        ? "The one dropped pair would not have helped, to first order."
        : `None of ${pairs} dropped pairs would have helped, to first order.`,
  listTitle: "Change of the token's loss, in nats, with one link added",
  arcs: { label: "The missing links in the text", go: (pos) => `Show token ${pos} in the text` },
  query: "From",
  key: "to",
  details: (layer, head, distance, share, predicted) => [
    `layer ${layer}, query head ${head}`,
    `${counted(distance, "token")} back`,
    `would get ${share} of the attention`,
    `predicted ${predicted}`,
  ],
  random: (kept) => (kept ? "kept by random groups" : "dropped by random groups"),
  open: (query, key, layer, change) =>
    `From token ${query} to token ${key} in layer ${layer}: ${change} nats. Show it in the text.`,
  label: (query, key) => `missing link ${query} to ${key}`,
};

/** @satisfies {Words} */
export const generation = {
  title: "The same prompt, continued both ways",
  help: (window) =>
    "Full attention and Focus with this run's model, centroids and setting take turns, token by token. Within the " +
    `first ${window} tokens Focus sees everything, so short prompts differ little. Colours are the groups of the ` +
    "open layer; arrow keys go from token to token and tell each one's group.",
  prompt: "Prompt",
  tokens: "Tokens to write",
  sampling: "Choice of tokens",
  temperatures: { 0: "Most probable", 0.8: "Drawn, temperature 0.8" },
  letters: "Show group letters",
  spoken: (piece, pos, label, layer) =>
    `${piece}, token ${pos}, ${label === null ? "no group yet" : `group ${label} in layer ${layer}`}`,
  textLabel: (side, layer) => `${side}, groups of layer ${layer}`,
  samplingHint:
    "Drawn tokens use the same random numbers in both, so the texts part only where the probabilities differ.",
  start: "Write",
  full: "Full attention",
  focus: "Focus",
  groupsLater: "Groups are those Focus would give; they appear when the text is finished.",
  speed: (ms, count, total) =>
    `${ms} a token (median of ${count}), after ${counted(total, "prompt token")}`,
  samePrefix: (count) => (count === "1" ? "The first token is the same." : `The first ${count} tokens are the same.`),
  same: "Both wrote the same so far.",
  differentFromStart: "They differ from the first token.",
  empty: "Press Write to see both texts grow.",
  group: (label, layer) => `group ${label} in layer ${layer}`,
};
