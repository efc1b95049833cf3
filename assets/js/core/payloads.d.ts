// What the server sends: one interface for each payload of focus_explorer/views/payloads, which says what is in it.
// Written by `python -m deploy.site.payloads`; changes here are lost.

/** Names of domains or texts that a run's centroids were trained on; empty where that is not known. */
export interface TrainedOnPayload {
  texts: string[];
}

/** Held-out results of one setting. */
export interface HeldOutSettingPayload {
  perplexity: number;
  retained_pairs?: number;
  dominance?: number;
}

/** Held-out results that a file holds. */
export interface HeldOutPayload {
  full: number;
  scored: number | null;
  focus: Record<string, HeldOutSettingPayload>;
}

/**
 * A file, and how many runs used it.
 *
 * `owner` is None where it belongs to no user; `budget_held_out` counts the domains that its budget was measured on,
 * see `BudgetRecordPayload.held_out`; `problem` stands in place of `training` and what follows when it cannot be read.
 */
export interface CentroidCardPayload {
  name: string;
  sha256: string;
  base_model: string;
  num_groups: number;
  routing_dim: number;
  layers: number;
  config: ConfigPayload;
  added: string | null;
  owner: string | null;
  runs: number;
  training?: Record<string, string | number | string[]>;
  held_out?: HeldOutPayload | null;
  budget_held_out?: number;
  problem?: string;
}

/** Every shipped and uploaded file. */
export interface CentroidCardsPayload {
  files: CentroidCardPayload[];
}

/** Cosines of the centroids of one layer. */
export interface SimilarityPayload {
  layer: number;
  similarity: number[][];
}

/** Group sizes of one layer of a run. */
export interface LayerBalancePayload {
  layer: number;
  dominance: number;
  balance: number;
  shares: number[];
}

/** A run that used a file. */
export interface CentroidRunPayload {
  run_id: string;
  title: string;
  name: string;
  num_tokens: number;
  layers: LayerBalancePayload[];
}

/** A measured budget; `own`: the file's, `held_out`: the one that the held-out rows are of. */
export interface BudgetPointPayload {
  budget: HeadExceptionPayload[];
  retained_pairs: number;
  excess: Record<string, number>;
  own: boolean;
  held_out: boolean;
}

/** A number with its interval, null where there is none. */
export interface BudgetIntervalPayload {
  value: number;
  low: number | null;
  high: number | null;
}

/** Held-out text of one domain; `change`: perplexity over that of full attention, minus 1. */
export interface BudgetHeldOutPayload {
  domain: string;
  change: BudgetIntervalPayload;
  full: BudgetIntervalPayload;
  focus: BudgetIntervalPayload;
  retained_pairs: number;
  sequences: number;
}

/** Measured budgets of a file; `target`: "loss" or "pairs" and its number; `calibration`: sequences by domain. */
export interface BudgetRecordPayload {
  points: BudgetPointPayload[];
  target: [string, number];
  met: boolean;
  calibration: Record<string, number>;
  held_out: BudgetHeldOutPayload[];
  held_out_own: boolean;
  before_factors: boolean;
  before_balance: boolean;
  before_growth: boolean;
  before_text_sinks: boolean;
  pairs_counted_at: number | null;
}

/** The file that has a chosen budget, and the settings it was measured at. */
export interface UsedBudgetPayload {
  sha256: string;
  name: string;
  top_k: number;
  window: number;
  num_sinks: number;
}

/** What is in a file, and the runs that used it; `budgets` is null without a readable record of them. */
export interface CentroidDetailPayload {
  sha256: string;
  name: string;
  layers: SimilarityPayload[];
  runs: CentroidRunPayload[];
  budgets: BudgetRecordPayload | null;
}

/** Matched groups of one layer of two files. */
export interface CentroidDistancePayload {
  pairs: [number, number, number][];
  mean: number;
  worst: number;
  null: number;
  unmatched: [number[], number[]];
  layer: number;
}

/** What differs between two files; settings: name, first, second. */
export interface CentroidChangesPayload {
  names: [string, string];
  problem: string;
  layers: CentroidDistancePayload[];
  settings: [string, string | number | boolean | number[] | HeadExceptionPayload[] | null, string | number | boolean | number[] | HeadExceptionPayload[] | null][];
}

/**
 * The fields of a configuration that a training recorded, `window` that of its steps on the soft gate.
 *
 * `exceptions`: layers and heads with a setting of their own; `budget_id`: what tells them from others.
 */
export interface TrainingConfigPayload {
  num_groups?: number;
  routing_dim?: number;
  top_k?: number;
  window?: number;
  window_growth?: [number, number];
  exceptions?: number;
  budget_id?: string;
  num_sinks?: number;
  gate?: string;
  normalisation?: string;
  assignment?: string;
}

/** Settings of a training; `result_window`, that of later use, is missing where an earlier version recorded it. */
export interface TrainingSettingsPayload {
  seq_len?: number;
  batch?: number;
  loss?: string;
  distil_weight?: number;
  hard?: boolean;
  hard_steps?: number;
  learn?: string;
  result_window?: number;
  accumulation?: number;
  learning_rate?: number;
}

/** Held-out perplexities, `focus` by "k=1" and so on, means over `domains`; empty without held-out text. */
export interface ValidationPayload {
  full?: number;
  scored?: number;
  focus?: Record<string, number>;
  domains?: string[];
}

/** One training. */
export interface TrainingPayload {
  training_id: string;
  name: string;
  status: "running" | "stopping" | "done" | "stopped" | "failed" | "interrupted";
  message: string;
  kind: string;
  model_id: string;
  device: string;
  dtype: string;
  seed: number;
  steps: number;
  step: number;
  elapsed: number;
  loss: number | null;
  perplexity: number | null;
  layer_error: number | null;
  dominance: number | null;
  dominance_max: number | null;
  retained_pairs: number | null;
  tokens_per_second: number | null;
  owner: string | null;
  resumable: boolean;
  usable: boolean;
  out: string;
  created_at: string;
  remaining: number | null;
  texts: string[];
  config: TrainingConfigPayload;
  settings: TrainingSettingsPayload;
  validation: ValidationPayload;
  part: string;
}

/** One mode of one training, thinned; `stride`: steps a point is the mean of. */
export interface CurvePayload {
  step: number[];
  loss: (number | null)[];
  layer_error: (number | null)[];
  dominance: (number | null)[];
  dominance_max: (number | null)[];
  retained_pairs: (number | null)[];
  tokens_per_second: (number | null)[];
  learning_rate: (number | null)[];
  stride: number;
  last: number;
}

/** The process started last, while no row describes it. */
export interface TrainingJobPayload {
  name: string;
  out: string;
  state: "starting" | "stopping" | "stopped" | "failed";
  message: string;
}

/** Trainings, and curves by training and mode: focus, full, and held-out:NAME for each domain of held-out text. */
export interface TrainingsPayload {
  trainings: TrainingPayload[];
  curves: Record<string, Record<string, CurvePayload>>;
  job: TrainingJobPayload | null;
}

/** A finished training added to the centroid files. */
export interface UsedTrainingPayload {
  sha256: string;
  name: string;
  model: string;
}

/** A resumed training. */
export interface ResumedTrainingPayload {
  out: string;
}

/**
 * One layer's groups of a text under the files a training kept: F frames, T tokens.
 *
 * `top` (F, T) bytes; `membership` (F, T, B) bytes, B as K needs; `places` (F, T, 2) int16, at one scale; all base64.
 * `top_k` and `window` are those of heads without a setting of their own; `has_budget` says whether others have one.
 * `spread`: share of the variance that the plane of the places shows. `waiting`: files that are not in yet.
 */
export interface FilmPayload {
  texts: string[];
  text: string;
  pieces: string[];
  layers: number[];
  layer: number;
  num_groups: number;
  top_k: number;
  window: number;
  window_growth: [number, number] | null;
  num_sinks: number;
  has_budget: boolean;
  sliding_window: number | null;
  steps: number[];
  top: string;
  membership: string;
  places: string;
  spread: number;
  waiting: number;
}

/** One measured setting. */
export interface GridCellPayload {
  device: string;
  dtype: string;
  backend: string;
  run_id: string;
  kind: "focus" | "window" | "random";
  top_k: number;
  window_size: number;
  num_sinks: number;
  assignment: string;
  measured_at: string;
  scored: number;
  perplexity_full: number;
  perplexity_focus: number;
  delta_mean: number;
  delta_low: number | null;
  delta_high: number | null;
  retained_pairs: number;
  dominance: number | null;
  threads: number;
  repeats: number;
  attention_full: number;
  attention_full_low: number;
  attention_full_high: number;
  attention_focus: number;
  attention_focus_low: number;
  attention_focus_high: number;
  total_full: number;
  total_focus: number;
}

/** Values worth measuring. */
export interface GridValuesPayload {
  top_k: number[];
  window: number[];
}

/** The run's own setting. */
export interface GridSettingPayload {
  top_k: number;
  window: number;
  num_sinks: number;
}

/** Measured settings of a run, and the job that measures more. */
export interface GridPayload {
  cells: GridCellPayload[];
  suggested: GridValuesPayload;
  setting: GridSettingPayload;
  num_groups: number;
  job: JobPayload | null;
}

/** Another run of the same tokens. */
export interface PartnerPayload {
  run_id: string;
  name: string;
  created_at: string;
  model_id: string;
  centroids_name: string;
  config: ConfigPayload;
  perplexity_focus: number;
  retained_pairs: number;
}

/** Other runs of the same tokens, newest first. */
export interface PartnersPayload {
  runs: PartnerPayload[];
}

/** Groups of one layer of two runs, matched. */
export interface MatchedLayerPayload {
  layer: number;
  names: number[];
  overlap: number;
  rand: number;
}

/** Mean loss difference in nats with its 95 % interval, null for one scored token. */
export interface LossDifferencePayload {
  mean: number;
  low: number | null;
  high: number | null;
  count: number;
}

/** Two runs of the same tokens; `top` is base64 of bytes, layer by layer. */
export interface MatchedRunsPayload {
  layers: MatchedLayerPayload[];
  top: string;
  losses: (number | null)[];
  difference: LossDifferencePayload;
}

/** Perplexity by mode. */
export interface PerplexityPayload {
  full: number;
  focus: number;
}

/** Times of a stage by mode; `peak_memory_bytes` by mode. */
export interface StagePayload {
  full?: SpreadPayload;
  focus?: SpreadPayload;
  peak_memory_bytes: Record<string, number | null>;
}

/** The numbers of one run, and what it is called. */
export interface RunSummaryPayload {
  device: string;
  dtype: string;
  backend: string;
  run_id: string;
  num_tokens: number;
  special_tokens: string | null;
  added_tokens: string[];
  scored_tokens: number;
  perplexity: PerplexityPayload;
  retained_pairs: number;
  distant_pairs_kept: number | null;
  dominance: number;
  milliseconds: Record<string, StagePayload>;
  config: ConfigPayload;
  model: string;
  centroids: string;
  notes: string[];
  changes: string[];
  db: string;
  title: string;
  name: string;
}

/** The numbers of two runs of any texts, and the settings that differ; `titles`: what those are called. */
export interface RunNumbersPayload {
  first: RunSummaryPayload;
  second: RunSummaryPayload;
  settings_that_differ: Record<string, (string | number | boolean | number[] | HeadExceptionPayload[] | null)[]>;
  titles: Record<string, string>;
}

/** One layer timed at one length. */
export interface LengthPayload {
  device: string;
  dtype: string;
  backend: string;
  run_id: string;
  layer: number;
  tokens: number;
  top_k: number;
  window_size: number;
  measured_at: string;
  full_median: number;
  full_low: number;
  full_high: number;
  focus_median: number;
  focus_low: number;
  focus_high: number;
  routing_median: number;
  retained_pairs: number;
  repeats: number;
  threads: number;
}

/** From which length Focus stays faster. */
export interface CrossingPayload {
  kind: "interpolated" | "from the start" | "never" | "mixed";
  tokens: number | null;
  below: number | null;
  above: number | null;
  clear: boolean;
}

/** Measured lengths of one layer and where the times cross. */
export interface LayerLengthsPayload {
  points: LengthPayload[];
  crossing: CrossingPayload | null;
}

/** Measured lengths by layer, and the job that measures more. */
export interface LengthsPayload {
  layers: Record<string, LayerLengthsPayload>;
  job: JobPayload | null;
}

/** A dropped pair of one query head; `predicted` in nats to first order, `nll` once it was really added. */
export interface MissingLinkPayload {
  layer: number;
  head: number;
  query: number;
  key: number;
  probability: number;
  predicted: number;
  nll: number | null;
  random_keeps: boolean | null;
}

/** The dropped pairs that would have helped one token, verified ones first; losses in nats. */
export interface ExplainedTokenPayload {
  token: number;
  measured_at: string;
  nll_full: number;
  nll_focus: number;
  nll_together: number | null;
  dropped_pairs: number;
  links: MissingLinkPayload[];
}

/** Tokens that were explained, one of them, and the job that explains another. */
export interface MissingLinksPayload {
  tokens: number[];
  explained: ExplainedTokenPayload | null;
  job: JobPayload | null;
}

/**
 * A key-value head: change of the loss by full attention in it alone, estimated, and that loss where measured (nats
 * per token); `dropped`: share of full attention outside the mask, None until measured.
 */
export interface HeadCostPayload {
  layer: number;
  head: number;
  estimated: number;
  nll: number | null;
  dropped: number | null;
}

/** What was measured of a run's heads, and the job that measures them. */
export interface HeadCostsPayload {
  num_tokens: number | null;
  nll_full: number | null;
  nll_focus: number | null;
  heads: HeadCostPayload[];
  job: JobPayload | null;
}

/** Text generated in one mode; `groups`: for each token, group by layer number. */
export interface GeneratedSidePayload {
  text: string;
  ids: number[];
  pieces: string[];
  groups: Record<string, number>[];
  ms: number[];
}

/** Generated text by mode; empty before the first token. */
export interface GeneratedPayload {
  full?: GeneratedSidePayload;
  focus?: GeneratedSidePayload;
  prompt_tokens?: number;
}

/** A generation and its job. */
export interface GenerationPayload {
  job: JobPayload | null;
  sides: GeneratedPayload;
}

/** A layer: tokens whose most probable group differs, and its share of pairs kept before and after. */
export interface ChangedLayerPayload {
  layer: number;
  moved: number;
  kept_before: number;
  kept_after: number;
}

/**
 * A changed run; losses are means in nats per token of the first `num_tokens` tokens. `changes`: base64 of a
 * float32 a token, its loss with the changes minus without. `other_top`: positions whose most probable token
 * differs.
 */
export interface WhatIfResultPayload {
  num_tokens: number;
  nll_full: number;
  nll_before: number;
  nll_after: number;
  difference: LossDifferencePayload;
  changes: string;
  other_top: number[];
  layers: ChangedLayerPayload[];
}

/**
 * Pairs of one layer that the changes add and drop, mean over its heads: in all, and base64 of float32 in blocks of
 * the lower triangle, row by row, as a share of each block's pairs.
 */
export interface ChangedPairsPayload {
  layer: number;
  num_tokens: number;
  block_size: number;
  gained: number;
  lost: number;
  gained_shares: string;
  lost_shares: string;
}

/** The most probable tokens at one place without and with the changes; None beyond the tokens that were read. */
export interface ChangedPredictionPayload {
  token: number;
  before: PredictionPayload | null;
  after: PredictionPayload | null;
}

/**
 * What is known of a changed run, the job that measures or saves it, the command that makes and saves it, and the
 * newest run saved from this one.
 */
export interface WhatIfPayload {
  result: WhatIfResultPayload | null;
  pairs: ChangedPairsPayload | null;
  prediction: ChangedPredictionPayload | null;
  job: JobPayload | null;
  saved: string | null;
  command: string;
}

/** The state of a background job; `seconds_left` where its work is even and some of it is done. */
export interface JobPayload {
  kind: string;
  run_id: string;
  state: "waiting" | "running" | "stopping" | "done" | "stopped" | "failed";
  stage: string;
  fraction: number;
  message: string;
  seconds_left: number | null;
}

/** An answer that holds a job alone. */
export interface JobAnswerPayload {
  job: JobPayload | null;
}

/** An exception of a budget; without `head` and `query_head` it is for the whole layer. */
export interface HeadExceptionPayload {
  layer: number;
  head?: number;
  query_head?: number;
  top_k?: number;
  window?: number;
  full?: boolean;
}

/**
 * FocusConfig as JSON; `budget`, `text_sinks`, `logit_factors` and `window_growth` where there are some.
 *
 * `budget_id`: of the configuration of a run with a budget, what tells that from others.
 */
export interface ConfigPayload {
  num_groups: number;
  routing_dim: number;
  top_k: number;
  window: number;
  num_sinks: number;
  temperature: number;
  sinkhorn_iterations: number;
  normalisation: string;
  assignment: string;
  gate: string;
  layers: number[] | null;
  budget?: HeadExceptionPayload[];
  budget_id?: string;
  text_sinks?: number;
  text_sinks_from?: number;
  logit_factors?: boolean;
  window_growth?: [number, number];
}

/** What a run was made with, `setting` in words; `added_tokens`: pieces that the tokenizer put before the text. */
export interface RunInfoPayload {
  run_id: string;
  name: string;
  created_at: string;
  model_id: string;
  centroids_name: string;
  config: ConfigPayload;
  device: string;
  dtype: string;
  backend: string;
  title: string;
  num_tokens: number;
  added_tokens: string[];
  setting: string;
  seed: number;
  notes: string[];
  changes: string[];
}

/** One group of one layer: share of tokens, mean confidence, and its most frequent tokens with their uses. */
export interface RunGroupPayload {
  share: number;
  confidence: number | null;
  tokens: [string, number][];
}

/** Pairs by cause (`CAUSES` of the runtime): counts, or their means over heads. */
export interface CausesPayload {
  local_only: number;
  group_only: number;
  local_and_group: number;
  sink_only: number;
  dropped: number;
}

/**
 * Heads of a layer that share a setting, with the pairs of one of them.
 *
 * `top_k` is null where `full`, 0 without groups; `heads` are numbers of query heads where `query_heads`, else of
 * key-value heads.
 */
export interface PartPayload {
  heads: number[];
  query_heads: boolean;
  top_k: number | null;
  window: number;
  full: boolean;
  retained_pairs: number;
  pairs: CausesPayload;
}

/** One layer: largest group, and pairs kept and by cause, means over its heads; `parts` are what these executed. */
export interface LayerPayload {
  layer: number;
  attention_kind: string;
  dominance: number;
  retained_pairs: number;
  sliding_window: number | null;
  pairs: CausesPayload;
  parts: PartPayload[];
}

/** Perplexities, and the mean loss difference in nats with its 95 % interval, null for one scored token. */
export interface QualityPayload {
  full: number;
  focus: number;
  scored: number;
  delta_mean: number;
  delta_low: number | null;
  delta_high: number | null;
}

/** Milliseconds over the repeats. */
export interface SpreadPayload {
  median: number;
  low: number;
  high: number;
  repeats: number;
}

/** One mode of one stage: milliseconds over the repeats. */
export interface TimingPayload {
  median: number;
  low: number;
  high: number;
  repeats: number;
  mode: string;
  stage: string;
  sequence_length: number;
  peak_memory_bytes: number | null;
}

/** Losses in nats as base64 of float32, one for each token but the first. */
export interface LossesPayload {
  full: string;
  focus: string;
}

/**
 * What every view needs of a run; `cells` by layer number, empty for a long run.
 *
 * The budget gives every head of `full_layers` full attention.
 */
export interface RunPayload {
  run: RunInfoPayload;
  num_layers: number;
  layer_ids: number[];
  pieces: string[];
  top: string;
  groups: RunGroupPayload[][];
  layers: LayerPayload[];
  full_layers: number[];
  losses: LossesPayload;
  quality: QualityPayload;
  timings: TimingPayload[];
  cells: Record<string, LayerCellsPayload>;
}

/** What was timed of a run so far. */
export interface TimingsPayload {
  timings: TimingPayload[];
}

/**
 * One layer by position: base64 of `width`-byte bit sets, and of bytes.
 *
 * `part_memberships` where heads differ: by number, the parts with other groups, full attention left out.
 */
export interface LayerCellsPayload {
  width: number;
  membership: string;
  probabilities: string;
  entropy: string;
  part_memberships?: Record<string, string>;
}

/**
 * By layer, as text: base64 of (T, K) bytes, the groups of every token, the most probable first.
 *
 * `fixed`: tokens whose groups are others than their first k, such as text sinks: position, and the set of its groups
 * as two words of 32 bits.
 */
export interface GroupOrdersPayload {
  orders: Record<string, string>;
  fixed: Record<string, [number, number, number][]>;
}

/**
 * What one token attends to in a layer: R rows, the mean over heads and then each head, with N keys each.
 *
 * Base64: `keys` of (R, N) int32, -1 for none; `full`, `focus`, `kept` of (R, N) float32, probabilities and the share
 * of heads that keep the pair; `full_kept` of (R,) float32, full attention's probability on all pairs Focus keeps.
 */
export interface LayerAttentionOfTokenPayload {
  layer: number;
  rows: number;
  keys: string;
  full: string;
  focus: string;
  kept: string;
  full_kept: string;
}

/** What is known of a token's attention: null while it is not computed. */
export interface AttentionOfTokenPayload {
  job: JobPayload | null;
  layers: LayerAttentionOfTokenPayload[] | null;
}

/** The most probable tokens at one place with their probabilities; `rank` of the real one, from 1. */
export interface PredictionPayload {
  rank: number;
  tokens: [string, number][];
}

/**
 * Predictions of one token; null in runs stored before 0.2 and for the first token. `changed`: the most probable
 * tokens differ, by their ids; several tokens may be written alike.
 */
export interface PredictionsPayload {
  full: PredictionPayload | null;
  focus: PredictionPayload | null;
  changed: boolean | null;
}

/**
 * `codes`: base64 of a byte a token. Bit 0: the most probable tokens differ; 1: full attention's is the real one;
 * 2: Focus's is. `stored` is false in runs without predictions.
 */
export interface PredictionChangesPayload {
  stored: boolean;
  codes: string;
}

/** Word class of every token; `classes` is base64 of bytes. */
export interface WordClassesPayload {
  names: string[];
  classes: string;
}

/** Block counts of one layer: `counts` is base64 of uint32, cause by cause, lower triangle row by row. */
export interface MaskPayload {
  block_size: number;
  num_blocks: number;
  causes: string[];
  counts: string;
}

/** Tokens and centroids in two dimensions; `preliminary`: a quick PCA that is not stored. */
export interface MapPayload {
  method: string;
  parameters: MapParametersPayload;
  seed: number;
  trustworthiness: number | null;
  positions: number[];
  x: number[];
  y: number[];
  centroid_x: number[];
  centroid_y: number[];
  preliminary: boolean;
}

/** Tokens of a map most like one token, by cosine similarity in the full space, among `of` others. */
export interface NeighboursPayload {
  token: number;
  positions: number[];
  similarity: number[];
  of: number;
}

/** What a map was made with; `space` names the vectors, `tokens` how many of `of` tokens are drawn. */
export interface MapParametersPayload {
  space?: string;
  layers?: number;
  tokens?: number;
  of?: number;
  metric?: string;
  n_neighbors?: number;
  min_dist?: number;
}

/**
 * Tokens of the text as it is now. `top`: base64 of bytes, layer by layer, the group of every token; `tokens_read`:
 * how many were computed for this answer, in `milliseconds`; `next`: the most probable tokens that follow, with their
 * probabilities.
 */
export interface LiveTextPayload {
  pieces: string[];
  layers: number[];
  top: string;
  tokens_read: number;
  milliseconds: number;
  next: [string, number][];
}

/** One run of the list; `deleted_at` is None while it is kept, `owner` where it belongs to no user. */
export interface RunCardPayload {
  run_id: string;
  name: string;
  created_at: string;
  model_id: string;
  centroids_name: string;
  config: ConfigPayload;
  title: string;
  note: string;
  tags: string[];
  num_tokens: number;
  added_tokens: string[];
  perplexity_full: number;
  perplexity_focus: number;
  retained_pairs: number;
  dominance: number;
  device: string;
  dtype: string;
  deleted_at: string | null;
  owner: string | null;
}

/** Kept and deleted runs. */
export interface RunCardsPayload {
  runs: RunCardPayload[];
  keep_days: number;
}

/** A run's name, note and tags. */
export interface RunLabelPayload {
  run_id: string;
  name: string;
  note: string;
  tags: string[];
}

/** Whether a run is deleted now. */
export interface DeletedPayload {
  deleted: boolean;
}

/** Rows of a SELECT statement. */
export interface SqlResultPayload {
  columns: string[];
  types: string[];
  rows: (string | number | boolean | null)[][];
  truncated: string;
  seconds: number;
}

/** Names and statements of examples, and the limits. */
export interface SqlExamplesPayload {
  examples: [string, string][];
  seconds: number;
  rows: number;
}

/** A table or figure that can be exported. */
export interface ExportItemPayload {
  name: string;
  about: string;
  layers: boolean;
}

/** Size of a figure in millimetres. */
export interface PresetPayload {
  name: string;
  about: string;
  width: number;
  height: number;
}

/** A layer whose masks can be exported: that of each part of its heads; `pairs` it keeps, mean over its heads. */
export interface MaskLayerPayload {
  layer: number;
  pairs: number;
  parts: PartPayload[];
}

/** What can be exported of masks; queries are numbered from 0 to one below `tokens`. */
export interface MaskChoicesPayload {
  formats: string[];
  layers: MaskLayerPayload[];
  tokens: number;
}

/** What can be exported of a run. */
export interface ExportChoicesPayload {
  title: string;
  kinds: string[];
  tables: ExportItemPayload[];
  formats: string[];
  mask: MaskChoicesPayload;
  figures: ExportItemPayload[];
  figure_formats: string[];
  report_formats: string[];
  presets: PresetPayload[];
}

/** The command that writes the same file. */
export interface ExportCommandPayload {
  command: string;
}

/** A finished file and its address. */
export interface ExportFilePayload {
  name: string;
  bytes: number;
  address: string;
}

/** An export and its job. */
export interface ExportPayload {
  id: string;
  job: JobPayload;
  file: ExportFilePayload | null;
}

/** One group of one layer; None where it has no tokens or was not measured. */
export interface GroupPayload {
  tokens: number;
  share: number;
  balance: number;
  flags: string[];
  classes: number[];
  top_class: number | null;
  purity: number | null;
  base_rate: number | null;
  null_mean: number | null;
  null_high: number | null;
  characteristic: [string, number, number][];
  attention_mass: number | null;
  confidence: number | null;
  entropy: number | null;
}

/** Every group of every layer, and what the text and the baselines are. */
export interface GroupsPayload {
  groups: GroupPayload[][];
  class_names: string[];
  class_shares: number[];
  classes: string;
  seed: number;
  draws: number;
  prior_size: number;
  most_q: number;
  attention_tokens: number | null;
  attention_heads: number | null;
}

/**
 * A trait and a group: `share` of the group's tokens, `base` of all; `covered`: of those with the trait; `p_value`:
 * probability that the best of all traits does as well in a group drawn at random.
 */
export interface TraitPayload {
  trait: string;
  phi: number;
  share: number;
  base: number;
  covered: number;
  p_value: number;
}

/** A group's name from statistics, empty where nothing is clear; `given`: the one that people gave it. */
export interface GroupNamePayload {
  name: string;
  given: string | null;
  evidence: TraitPayload[];
}

/** Names by layer and group, and what they had to exceed: `random` by layer, None where it was not measured. */
export interface GroupNamesPayload {
  names: GroupNamePayload[][];
  traits: number;
  random: (number | null)[];
  least_phi: number;
  least_share: number;
  most_p_value: number;
}

/** Adjusted Rand index of every two layers; `shuffled`: least and most of neighbours with one of them shuffled. */
export interface LayerAgreementPayload {
  agreement: number[][];
  shuffled: [number, number] | null;
  pairs: number;
  seed: number;
}

/** A rectangle of a mask: base64 of `bytes`-byte integers; rows and keys: first and one past the last. */
export interface MaskTilePayload {
  block_size: number;
  rows: [number, number];
  keys: [number, number];
  num_rows: number;
  num_columns: number;
  causes: string[];
  bytes: number;
  counts: string;
}

/** Pairs of one layer by distance and cause, mean over its heads, with the shares of both baselines. */
export interface DistancePayload {
  first: number[];
  last: number[];
  causes: string[];
  counts: number[][];
  sharing: number;
  beyond: (number | null)[];
  shuffled: number[];
  window_only: number[];
}

/** Shares of pairs by distance, mean over layers. */
export interface DistanceMeanPayload {
  first: number[];
  last: number[];
  causes: string[];
  pairs: number[];
  layers: number;
  shares: number[][];
  kept_least: number[];
  kept_most: number[];
  shuffled: number[];
  window_only: number[];
  sharing: number[];
  beyond: (number | null)[];
  layer_shuffled: number[];
  layer_window_only: number[];
}

/** Share of full attention by cause, layers by heads. */
export interface AttentionMassPayload {
  state: "done";
  num_tokens: number;
  mass_kept: number[][];
  distant_mass_kept: (number | null)[][];
  local: number[][];
  sinks: number[][];
  grouped: number[][];
  dropped: number[][];
  sharing: number[];
}

/** A measurement of attention that is running. */
export interface AttentionRunningPayload {
  state: "running";
  stage: string;
  fraction: number;
}

/** No measurement of attention yet, or one that failed. */
export interface AttentionPlannedPayload {
  state: "none" | "failed";
  num_tokens: number;
  whole: number;
  problem?: string;
}

/** Strongest links: head, query, key, probability, affinity. */
export interface AttentionLinksPayload {
  columns: string[];
  dropped: [number, number, number, number, number][];
  kept: [number, number, number, number, number][];
}

/** Statistics that are still being computed. */
export interface ComputingPayload {
  state: "computing";
  fraction: number;
}

/** Rows of statistics as columns; `decimals`: null for a share. */
export interface StatisticColumnsPayload {
  title: string[];
  meaning: string[];
  family: string[];
  decimals: (number | null)[];
  layer: (number | null)[];
  group: (string | null)[];
  statistic: string[];
  category: string[];
  value: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  shuffled: (number | null)[];
  shuffled_low: (number | null)[];
  shuffled_high: (number | null)[];
  random: (number | null)[];
  random_low: (number | null)[];
  random_high: (number | null)[];
  window_only: (number | null)[];
  difference: (number | null)[];
  difference_low: (number | null)[];
  difference_high: (number | null)[];
  q_value: (number | null)[];
  count: number[];
  denominator: string[];
  warning: string[];
  from_shuffled: (string | null)[];
  from_random: (string | null)[];
}

/** What the statistics rest on. */
export interface StatisticsBasisPayload {
  tokens: number;
  units: number;
  unit: string;
  tagger: string | null;
  random_seed: number | null;
  attention_tokens: number | null;
  notes: string[];
  length: "few" | "rough" | "enough";
}

/** What was not measured yet. */
export interface StatisticsMissingPayload {
  tags: boolean;
  random: boolean;
  attention: boolean;
}

/** Statistics of a run and of its layers. */
export interface StatisticsPayload {
  state: "done";
  about: StatisticsBasisPayload;
  missing: StatisticsMissingPayload;
  run: StatisticColumnsPayload;
  layers: StatisticColumnsPayload;
  job: JobPayload | null;
}

/** Characteristic tokens of the groups of one layer. */
export interface CharacteristicColumnsPayload {
  layer: number[];
  group: string[];
  kind: string[];
  piece: string[];
  uses: number[];
  uses_in_text: number[];
  z: number[];
  q_value: number[];
}

/** Word categories in the groups of one layer. */
export interface CategoryColumnsPayload {
  low: (number | null)[];
  high: (number | null)[];
  layer: number[];
  group: string[];
  scheme: string[];
  category: string[];
  share: (number | null)[];
  share_of_text: number[];
  lift: (number | null)[];
  q_value: (number | null)[];
  random: (number | null)[];
}

/** Statistics of the groups of one layer. */
export interface LayerStatisticsPayload {
  state: "done";
  groups: StatisticColumnsPayload;
  characteristic: CharacteristicColumnsPayload;
  categories: CategoryColumnsPayload;
}

/** Pairs by distance of one layer and of the mean over layers (layer None). */
export interface DistanceColumnsPayload {
  low: (number | null)[];
  high: (number | null)[];
  layer: (number | null)[];
  first: number[];
  last: number[];
  pairs: number[];
  kept: number[];
  share: (number | null)[];
  shuffled: (number | null)[];
  random: (number | null)[];
  random_low: (number | null)[];
  random_high: (number | null)[];
  window_only: (number | null)[];
}

/** Ranked pairs of tokens of one layer. */
export interface TokenPairColumnsPayload {
  layer: number[];
  query: number[];
  key: number[];
  query_piece: string[];
  key_piece: string[];
  distance: number[];
  affinity: number[];
}

/** Strongest pairs of one group that are far apart, of one layer. */
export interface DistantPairColumnsPayload {
  layer: number[];
  query: number[];
  key: number[];
  query_piece: string[];
  key_piece: string[];
  distance: number[];
  affinity: number[];
  group: string[];
}

/** Strongest kept and dropped links of one layer. */
export interface LinkColumnsPayload {
  layer: number[];
  query: number[];
  key: number[];
  query_piece: string[];
  key_piece: string[];
  distance: number[];
  affinity: number[];
  head: number[];
  kind: string[];
  probability: number[];
}

/** Statistics of the pairs of one layer; the links are of `query_heads` heads. */
export interface PairStatisticsPayload {
  state: "done";
  distances: DistanceColumnsPayload;
  pairs: DistantPairColumnsPayload;
  links: LinkColumnsPayload;
  links_stored: Record<string, number>;
  links_measured: boolean;
  query_heads: number | null;
}

/** Agreement of two runs, layer by layer. */
export interface AgreementColumnsPayload {
  low: (number | null)[];
  high: (number | null)[];
  layer: number[];
  adjusted_rand: number[];
  shuffled: number[];
  random: (number | null)[];
  overlap: number[];
  overlap_low: (number | null)[];
  overlap_high: (number | null)[];
  overlap_shuffled: number[];
  overlap_random: (number | null)[];
}

/** Agreement of two runs. */
export interface RunAgreementPayload {
  state: "done";
  rows: AgreementColumnsPayload;
}
