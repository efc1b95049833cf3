// @ts-check
// Labels and sentences of the Training tab.
import { common } from "./common.js";
/** @import { TrainingPayload } from "../core/payloads.js" */
/** @import { Words } from "./words.js" */

/**
 * The window of later use, and that of the training where it is another; of an older record only the latter is known.
 * @param {TrainingPayload} run
 */
function windows({ kind, config, settings }) {
  const { result_window: result = kind === "centroids" ? null : config.window } = settings;
  const growing = common.growing(config);
  if (result === null) return [`training window ${config.window}${growing}`];
  return [`window ${result}${growing}`, result === config.window ? null : `training window ${config.window}`];
}

/** @satisfies {Words} */
export const training = {
  empty: {
    title: "No training yet",
    body:
      "Give a text, or leave the field empty to try it on the sample texts, and press Start training. The curve of " +
      "its loss and the balance of its groups then grow here, step by step.",
  },
  loading: "Loading the trainings…",
  starting: (name) => `Starting “${name}”: reading the text and loading the model…`,
  stoppingStart: (name) => `Stopping “${name}”…`,
  stoppedStart: (name) => `“${name}” was stopped before its first step; nothing was kept.`,
  failedStart: (name, message) => `“${name}” could not be trained: ${message}.`,
  listTitle: "Trainings",
  listHint: "Click a name to look at that training alone. Tick up to four to lay their curves over each other.",
  show: (name) => `Draw the curves of ${name}`,
  open: (name) => `Look at ${name} alone`,
  columns: {
    name: "Name",
    status: "Status",
    model: "Model",
    groups: "Groups",
    steps: "Steps",
    loss: "Loss",
    dominance: "Largest group",
    pairs: "Pairs kept",
  },
  statuses: {
    running: "running",
    stopping: "stopping",
    done: "done",
    stopped: "stopped",
    failed: "failed",
    interrupted: "interrupted",
  },
  stepOf: (step, steps) => `${step} of ${steps}`,
  none: "–",
  progressLabel: "Progress of the training",
  progress: (step, steps) => `Step ${step} of ${steps}`,
  elapsed: (time) => `${time} so far`,
  took: (time) => `took ${time}`,
  started: (date, owner) => (owner ? `${date} by ${owner}` : date),
  remaining: (time) => `about ${time} left`,
  lastSteps: "calibrating and saving",
  stop: "Stop",
  stopping: "Stopping: the last step is being saved…",
  resume: "Continue",
  use: "Use on the Explore page",
  using: "Checking the file…",
  settings: (run) =>
    [
      `K = ${run.config.num_groups} groups`,
      `top-k ${run.config.top_k}`,
      ...windows(run),
      run.config.num_sinks === 1 ? "1 sink" : `${run.config.num_sinks} sinks`,
      `${run.config.gate} gate`,
      `${run.config.normalisation} balancing`,
    ]
      .filter(Boolean)
      .join(", ") + common.budgetOf(run.config.exceptions ?? 0, run.config.budget_id),
  settingsSubject: "the settings",
  settingsHint:
    "K is the number of groups a layer sorts tokens into; in use, a token joins its top-k groups. A token sees its " +
    "groups, the nearest tokens (the window) and the first few tokens (the sinks). While training, groups act as a " +
    "soft gate, or as the mask in the steps that the list below names, and the balancing keeps one group from taking " +
    "every token. Layers and heads with an exception of the budget have a setting of their own.",
  facts: (run, format) =>
    [
      run.model_id,
      run.texts.length === 1 ? run.texts[0] : `${run.texts.length} texts`,
      run.settings.seq_len
        ? `${format.count(run.settings.seq_len)} tokens × ` +
          `${format.count(run.settings.batch * (run.settings.accumulation || 1))} a step`
        : null,
      run.settings.learning_rate ? `learning rate ${run.settings.learning_rate}` : null,
      run.settings.loss === "distil" ? "distilled from full attention" : null,
      run.settings.loss === "layers" ? "distilled layer by layer" : null,
      run.settings.loss === "both" ? `loss + ${run.settings.distil_weight} × distillation` : null,
      run.settings.learn === "factors" ? "factors of logits, all steps under the mask at the settings of use" : null,
      run.settings.hard ? "all steps on the hard mask" : null,
      run.settings.hard_steps ? `last ${format.count(run.settings.hard_steps)} steps on the hard mask` : null,
      run.kind === "centroids" && run.settings.result_window === undefined && run.settings.learn !== "factors"
        ? `recorded by an earlier version: pairs kept at the training window of ${run.config.window}` +
          (run.settings.hard_steps ? ", in the steps on the hard mask at that of use" : "")
        : null,
      `seed ${run.seed}`,
      run.device,
      run.dtype,
      format.date(run.created_at),
    ].filter(Boolean),
  kind: (kind) => (kind === "centroids" ? null : kind),
  validation: (scored, domains, full, focus, budget) =>
    `Held-out text (${scored} tokens${domains.length > 0 ? `, mean over ${domains.join(", ")}` : ""}): ` +
    `perplexity ${full} with full attention, ${focus}.` +
    (budget ? " k is that of heads without a setting of their own; the others keep theirs." : ""),
  validationPart: (name, value) => `${value} with Focus at ${name}`,
  table: {
    caption: (count) => `Newest values: means of each training's last ${count} steps`,
    columns: {
      run: "Training",
      step: "Step",
      loss: "Loss",
      perplexity: "Perplexity",
      layer_error: "Layer error",
      dominance: "Largest group",
      worst: "Most lopsided layer",
      pairs: "Pairs kept",
      speed: "Tokens a second",
    },
    hints: {
      loss: (how) => `Mean surprise per token of the training text, in nats, ${how}; lower is better`,
      perplexity: "The same as e to the power of the loss: as if choosing between so many equally likely tokens",
      layer_error: "What Focus changes in a layer's output, relative to that output; mean over layers, lower is better",
      dominance:
        "Share of tokens in the largest group, mean over layers. 1/K would be even; near 100 % the groups have " +
        "collapsed",
      worst: "The largest group of the layer where it is largest",
      pairs:
        "Share of token pairs that the hard mask of later use, its window and budget, would keep with the groups of " +
        "these steps; fewer is faster",
    },
    attention: ({ config, settings }) => {
      if (!config.num_groups) return "with its own attention";
      if (settings.learn === "factors") return "under the mask of later use";
      if (settings.hard) return "under the hard mask";
      return settings.hard_steps
        ? `with the soft gate, in the last ${settings.hard_steps} steps under the hard mask`
        : "with the soft gate";
    },
    attentionOf: (how, names) => `${how} (${names.join(", ")})`,
  },
  charts: {
    loss: { title: "Loss", help: "Lower is better. Faint: every step; bold: smoothed." },
    perplexity: { title: "Perplexity", help: "The loss in another unit: how many tokens the model hesitates between." },
    layer_error: {
      title: "Layer error",
      help: "What Focus changes in a layer's output, relative to that output; mean over layers, lower is better.",
    },
    dominance: {
      title: "Largest group",
      help: "Share of all tokens. Bold: mean over layers; dotted: most lopsided layer.",
    },
    retained_pairs: {
      title: "Pairs kept",
      help: "Share of token pairs that the mask of later use would keep with a step's groups; fewer is faster.",
    },
    tokens_per_second: { title: "Tokens a second", help: "How fast the training goes." },
    learning_rate: {
      title: "Learning rate",
      help: "How far a step may move the centroids: it rises, then falls to a tenth.",
    },
  },
  even: (percent) => `even: ${percent}`,
  limit: (percent) => `1.5 × even: ${percent}`,
  stepAxis: "step",
  stepTitle: (step) => `Step ${step}`,
  smoothed: (value, smooth) => `${value} (smoothed ${smooth})`,
  full: (name) => `${name}, full attention`,
  fullHelp: "Dashed: the same training with full attention.",
  heldOut: (name, domain) => `${name}, held-out ${domain === "held-out" ? "text" : domain}`,
  heldOutHelp: "Points: held-out text, scored as the file would be used; a symbol for each domain.",
  strideHelp: (stride) => `Long curves are drawn as means of ${stride} steps.`,
  zoomHelp: "Drag over a chart to enlarge a part of all; double-click to see everything.",
  film: {
    title: "Film",
    help: (budget) =>
      "How the groups came about: each frame is a centroid file that the training kept on the way, used on a text as " +
      `a run would use it${budget ? ", in heads without a setting of their own" : ""}.`,
    make: "Make the film",
    reading: "Reading the first files…",
    read: (done, total) => `Read ${done} of ${total} files…`,
    play: "Play",
    pause: "Pause",
    frame: "Frame",
    step: (step) => `step ${step}`,
    layer: "Layer",
    text: "Text",
    tokens: "The text, coloured by group",
    map: "Tokens by group probabilities",
    mask: "Kept pairs of tokens",
    order: "Tokens in the order of",
    orders: { group: "their groups at the end", text: "the text" },
    spread: (share) =>
      `The same plane in all frames, that of the largest differences: it shows ${share} of them. Tokens near each ` +
      "other have similar probabilities.",
    words: (step, share, moved, before, budget) =>
      `After step ${step}, ${share} of this text's pairs are kept` +
      (budget ? " in heads without a setting of their own" : "") +
      (moved === null ? "." : `; ${moved} of the tokens changed their group since step ${before}.`),
  },
  noCurve: "The curve appears after the first steps.",
};
