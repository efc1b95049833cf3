// The payloads that the server sends, one interface for each Python function that builds one. The comment above an
// interface names that function. Only simple types are used, so that a small parser can compare both sides: string,
// number, boolean, null, T[], [T, U], Record<string, T>, unions, other interfaces, one extended interface that stands
// above, and `?` for a key that may be absent.

// ---- runs: focus_explorer/views/run.py, focus_explorer/usecases/run_payload.py

/** FocusConfig as JSON; `budget` where there is one. */
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

/** An exception of `budget` of a configuration; without `head` and `query_head` it is for the whole layer. */
export interface HeadExceptionPayload {
  layer: number;
  head?: number;
  query_head?: number;
  top_k?: number;
  window?: number;
  full?: boolean;
}

/** `run` of run_payload. */
export interface RunInfoPayload {
  run_id: string;
  title: string;
  name: string;
  model_id: string;
  centroids_name: string;
  num_tokens: number;
  added_tokens: string[];
  device: string;
  dtype: string;
  backend: string;
  seed: number;
  created_at: string;
  config: ConfigPayload;
  notes: string[];
  changes: string[];
}

/** A cell of `groups` of run_payload: one group of one layer. */
export interface RunGroupPayload {
  share: number;
  confidence: number | null;
  tokens: [string, number][];
}

/** Pairs by cause (CAUSES of the runtime's mask): counts, or their means over heads. */
export interface CausesPayload {
  local_only: number;
  group_only: number;
  local_and_group: number;
  sink_only: number;
  dropped: number;
}

/**
 * Heads of a layer that share a setting, with the pairs of one of them; query heads where `query_heads`, else key-value
 * heads. `top_k` is null where `full`, 0 without groups.
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

/** A cell of `layers` of run_payload: means over the heads, and in `parts` what these executed. */
export interface LayerPayload {
  layer: number;
  attention_kind: string;
  dominance: number;
  retained_pairs: number;
  distant_kept: number | null;
  sliding_window: number | null;
  pairs: CausesPayload;
  parts: PartPayload[];
}

/** `quality` of run_payload: perplexities, and the mean loss difference with its 95 % interval, null for one scored token. */
export interface QualityPayload {
  full: number;
  focus: number;
  scored: number;
  delta_mean: number;
  delta_low: number | null;
  delta_high: number | null;
}

/** A cell of `timings` of run_payload: milliseconds over the repeats. */
export interface TimingPayload {
  mode: string;
  stage: string;
  median: number;
  low: number;
  high: number;
  repeats: number;
  sequence_length: number;
  backend: string;
  peak_memory_bytes: number | null;
}

/** `losses` of run_payload: base64 of float32, one for each token but the first. */
export interface LossesPayload {
  full: string;
  focus: string;
}

/** run_payload and load_run; `cells` by layer number, empty for a long run; the budget gives every head of
 * `full_layers` full attention. */
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

/** cells_payload and layer_cells: base64 of `width`-byte bit sets, and of bytes; `part_memberships` where heads differ:
 * by number, the parts with other groups, full attention left out. */
export interface LayerCellsPayload {
  width: number;
  membership: string;
  probabilities: string;
  entropy: string;
  part_memberships?: Record<string, string>;
}

/** group_orders: by layer, base64 of (T, K) bytes, the groups of every token, the most probable first. `fixed`: tokens
 * whose groups are others than their first k: position, and the set of its groups as two words. */
export interface GroupOrdersPayload {
  orders: Record<string, string>;
  fixed: Record<string, [number, number, number][]>;
}

/** A cell of `layers` of token_attention: R rows, the mean over heads and then each head, with N keys each. Base64 of
 * (R, N) int32 keys, -1 for none, and float32 shares; of (R,) `full_kept`. */
export interface LayerAttentionOfTokenPayload {
  layer: number;
  rows: number;
  keys: string;
  full: string;
  focus: string;
  kept: string;
  full_kept: string;
}

/** token_attention: `layers` is null while it is not computed. */
export interface AttentionOfTokenPayload {
  token: number;
  job: JobPayload | null;
  layers: LayerAttentionOfTokenPayload[] | null;
}

/** The most probable tokens at one place with their probabilities; `rank` of the real one, from 1. */
export interface PredictionPayload {
  rank: number;
  tokens: [string, number][];
}

/**
 * predictions: of one token; null in runs stored before 0.2 and for the first token. `changed`: the most probable tokens
 * differ, by their ids.
 */
export interface PredictionsPayload {
  token: number;
  full: PredictionPayload | null;
  focus: PredictionPayload | null;
  changed: boolean | null;
}

/** prediction_changes: `codes` is base64 of bytes: bit 0 the first choices differ, 1 full's is real, 2 Focus's is. */
export interface PredictionChangesPayload {
  stored: boolean;
  codes: string;
}

/** trained_on: names of domains or texts that a run's centroids were trained on; empty where that is not known. */
export interface TrainedOnPayload {
  texts: string[];
}

/** timings: what was timed of a run so far. */
export interface TimingsPayload {
  timings: TimingPayload[];
}

/** word_classes: `classes` is base64 of bytes. */
export interface WordClassesPayload {
  names: string[];
  classes: string;
}

/** mask_payload: `counts` is base64 of uint32, cause by cause, the lower triangle row by row. */
export interface MaskPayload {
  block_size: number;
  num_blocks: number;
  causes: string[];
  counts: string;
}

/** map_neighbours: tokens most like one, by cosine similarity in the full space, among `of` others. */
export interface NeighboursPayload {
  token: number;
  positions: number[];
  similarity: number[];
  of: number;
}

/** projection_payload of focus_explorer/views/run.py with `preliminary` of focus_explorer/usecases/maps.py. */
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

/** `parameters` of a map. */
export interface MapParametersPayload {
  space?: string;
  layers?: number;
  tokens?: number;
  of?: number;
  metric?: string;
  n_neighbors?: number;
  min_dist?: number;
}

// ---- groups: focus_explorer/usecases/groups.py

/** A cell of `groups` of group_payload: one group of one layer. */
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

/** group_payload. */
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

/** A trait of tokens in words, and a group. */
export interface TraitPayload {
  trait: string;
  phi: number;
  share: number;
  base: number;
  covered: number;
  p_value: number;
}

/** A cell of `names` of group_names. */
export interface GroupNamePayload {
  name: string;
  given: string | null;
  evidence: TraitPayload[];
}

/** group_names. */
export interface GroupNamesPayload {
  names: GroupNamePayload[][];
  traits: number;
  random: (number | null)[];
  least_phi: number;
  least_share: number;
  most_p_value: number;
}

/** agreement_payload. */
export interface LayerAgreementPayload {
  agreement: number[][];
  shuffled: [number, number] | null;
  pairs: number;
  seed: number;
}

// ---- pairs: focus_explorer/views/pairs.py, focus_explorer/usecases/pairs.py

/** tile_payload: `counts` is base64 of unsigned integers of `bytes` bytes; rows and keys are first and one past last. */
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

/** distance_payload. */
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

/** mean_payload. */
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

/** mass_payload with `state: "done"`: layers by heads. */
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

/** SparsityViews.attention while a measurement is at work. */
export interface AttentionRunningPayload {
  state: "running";
  stage: string;
  fraction: number;
}

/** SparsityViews.attention before a measurement, or after one that failed. */
export interface AttentionPlannedPayload {
  state: "none" | "failed";
  num_tokens: number;
  whole: number;
  problem?: string;
}

/** links_payload: head, query, key, probability, affinity. */
export interface AttentionLinksPayload {
  columns: string[];
  dropped: [number, number, number, number, number][];
  kept: [number, number, number, number, number][];
}

// ---- jobs and the Compare view: focus_explorer/usecases/jobs.py, services/compare/, ui/answers_compare.py

/** The state of a background job. */
export interface JobPayload {
  kind: string;
  run_id: string;
  state: "waiting" | "running" | "stopping" | "done" | "stopped" | "failed";
  stage: string;
  fraction: number;
  message: string;
  seconds_left: number | null;
}

/** Answers that hold a job alone: compare_stop, statistics_measure, statistics_stop, statistics_job. */
export interface JobAnswerPayload {
  job: JobPayload | null;
}

/** A row of grid_rows: one measured setting. */
export interface GridCellPayload {
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
  backend: string;
  device: string;
  dtype: string;
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

/** `suggested` of grid. */
export interface GridValuesPayload {
  top_k: number[];
  window: number[];
}

/** `setting` of grid. */
export interface GridSettingPayload {
  top_k: number;
  window: number;
  num_sinks: number;
}

/** grid with the job: compare_grid and compare_grid_start. */
export interface GridPayload {
  cells: GridCellPayload[];
  suggested: GridValuesPayload;
  setting: GridSettingPayload;
  num_groups: number;
  job: JobPayload | null;
}

/** A row of partners. */
export interface PartnerPayload {
  run_id: string;
  name: string;
  created_at: string;
  model_id: string;
  centroids_name: string;
  centroids_sha256: string;
  config: ConfigPayload;
  perplexity_focus: number;
  retained_pairs: number;
}

/** compare_partners. */
export interface PartnersPayload {
  runs: PartnerPayload[];
}

/** A row of `layers` of compare_runs. */
export interface MatchedLayerPayload {
  layer: number;
  names: number[];
  overlap: number;
  rand: number;
}

/** `difference` of compare_runs. */
export interface LossDifferencePayload {
  mean: number;
  low: number | null;
  high: number | null;
  count: number;
}

/** compare_runs: two runs of the same tokens; `top` is base64 of bytes, layer by layer. */
export interface MatchedRunsPayload {
  layers: MatchedLayerPayload[];
  top: string;
  losses: (number | null)[];
  difference: LossDifferencePayload;
}

/** `perplexity` of Service.summary. */
export interface PerplexityPayload {
  full: number;
  focus: number;
}

/** A mode of a stage of `milliseconds` of Service.summary. */
export interface SpreadPayload {
  median: number;
  low: number;
  high: number;
  repeats: number;
}

/** A stage of `milliseconds` of Service.summary; `peak_memory_bytes` by mode. */
export interface StagePayload {
  full?: SpreadPayload;
  focus?: SpreadPayload;
  peak_memory_bytes: Record<string, number | null>;
}

/** Service.summary with title and name: `first` and `second` of numbers. */
export interface RunSummaryPayload {
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
  device: string;
  dtype: string;
  backend: string;
  notes: string[];
  changes: string[];
  db: string;
  title: string;
  name: string;
}

/** numbers: two runs of any texts. */
export interface RunNumbersPayload {
  first: RunSummaryPayload;
  second: RunSummaryPayload;
  settings_that_differ: Record<string, (string | number | boolean | number[] | HeadExceptionPayload[] | null)[]>;
}

/** A row of `points` of lengths. */
export interface LengthPayload {
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
  backend: string;
  device: string;
  dtype: string;
  threads: number;
}

/** crossing_payload of focus_explorer/statistics/crossover.py. */
export interface CrossingPayload {
  kind: "interpolated" | "from the start" | "never" | "mixed";
  tokens: number | null;
  below: number | null;
  above: number | null;
  clear: boolean;
}

/** A layer of lengths. */
export interface LayerLengthsPayload {
  points: LengthPayload[];
  crossing: CrossingPayload | null;
}

/** lengths with the job: compare_lengths and compare_lengths_start. */
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

/** compare_links and compare_links_start. */
export interface MissingLinksPayload {
  tokens: number[];
  explained: ExplainedTokenPayload | null;
  job: JobPayload | null;
}

/** A cell of `heads` of head_costs. */
export interface HeadCostPayload {
  layer: number;
  head: number;
  estimated: number;
  nll: number | null;
  dropped: number | null;
}

/** head_costs. */
export interface HeadCostsPayload {
  num_tokens: number | null;
  nll_full: number | null;
  nll_focus: number | null;
  heads: HeadCostPayload[];
  job: JobPayload | null;
}

/** Groups of a text while it is being typed (focus_explorer/usecases/live_text.py). */
export interface LiveTextPayload {
  pieces: string[];
  layers: number[];
  top: string;
  tokens_read: number;
  milliseconds: number;
  next: [string, number][];
}

/** One layer of a changed run (focus_explorer/usecases/compare/what_if.py). */
export interface ChangedLayerPayload {
  layer: number;
  moved: number;
  kept_before: number;
  kept_after: number;
}

/** A run with and without changes; `changes` is base64 of float32, nats by token. */
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

/** Pairs that changes add and drop in one layer; shares are base64 of float32, the lower triangle row by row. */
export interface ChangedPairsPayload {
  layer: number;
  num_tokens: number;
  block_size: number;
  gained: number;
  lost: number;
  gained_shares: string;
  lost_shares: string;
}

/** Predictions of one token without and with changes. */
export interface ChangedPredictionPayload {
  token: number;
  before: PredictionPayload | null;
  after: PredictionPayload | null;
}

/** what_if, what_if_start and what_if_save. */
export interface WhatIfPayload {
  result: WhatIfResultPayload | null;
  pairs: ChangedPairsPayload | null;
  prediction: ChangedPredictionPayload | null;
  saved: string | null;
  command: string;
  job: JobPayload | null;
}

/** One side of a generation (focus_explorer/usecases/generate.py); `groups` by layer number, for each token. */
export interface GeneratedSidePayload {
  text: string;
  ids: number[];
  pieces: string[];
  groups: Record<string, number>[];
  ms: number[];
}

/** `sides` of a generation; empty before the first. */
export interface GeneratedPayload {
  full?: GeneratedSidePayload;
  focus?: GeneratedSidePayload;
  prompt_tokens?: number;
}

/** compare_generation and compare_generation_start. */
export interface GenerationPayload {
  job: JobPayload | null;
  sides: GeneratedPayload;
}

// ---- statistics: focus_explorer/web/questions/statistics.py, focus_explorer/views/statistics.py; tables as columns

/** Any statistics answer that is still being computed. */
export interface ComputingPayload {
  state: "computing";
  fraction: number;
}

/** compact(…, SHOWN): rows of statistics as columns. */
export interface StatisticColumnsPayload {
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
  p_value: (number | null)[];
  q_value: (number | null)[];
  count: number[];
  denominator: string[];
  warning: string[];
  from_shuffled: (string | null)[];
  from_random: (string | null)[];
}

/** `about` of the overview. */
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

/** `missing` of the overview. */
export interface StatisticsMissingPayload {
  tags: boolean;
  random: boolean;
  attention: boolean;
}

/** StatisticsViews.overview when it is computed. */
export interface StatisticsPayload {
  state: "done";
  about: StatisticsBasisPayload;
  missing: StatisticsMissingPayload;
  run: StatisticColumnsPayload;
  layers: StatisticColumnsPayload;
  job: JobPayload | null;
}

/** characteristic_table of one layer. */
export interface CharacteristicColumnsPayload {
  layer: number[];
  group: string[];
  kind: string[];
  rank: number[];
  piece: string[];
  uses: number[];
  uses_in_text: number[];
  z: number[];
  p_value: number[];
  q_value: number[];
}

/** categories_table of one layer. */
export interface CategoryColumnsPayload {
  layer: number[];
  group: string[];
  scheme: string[];
  category: string[];
  tokens: number[];
  group_tokens: number[];
  share: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  share_of_text: number[];
  lift: (number | null)[];
  z: (number | null)[];
  p_value: (number | null)[];
  q_value: (number | null)[];
  random: (number | null)[];
  units: number[];
  unit: string[];
}

/** StatisticsViews.layer when it is computed. */
export interface LayerStatisticsPayload {
  state: "done";
  groups: StatisticColumnsPayload;
  characteristic: CharacteristicColumnsPayload;
  categories: CategoryColumnsPayload;
}

/** distances_table of one layer and of the mean over layers. */
export interface DistanceColumnsPayload {
  layer: (number | null)[];
  first: number[];
  last: number[];
  pairs: number[];
  kept: number[];
  share: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  shuffled: (number | null)[];
  random: (number | null)[];
  random_low: (number | null)[];
  random_high: (number | null)[];
  window_only: (number | null)[];
  units: number[];
  unit: string[];
}

/** Ranked pairs of tokens of one layer. */
export interface TokenPairColumnsPayload {
  layer: number[];
  rank: number[];
  query: number[];
  key: number[];
  query_piece: string[];
  key_piece: string[];
  distance: number[];
  affinity: number[];
}

/** Pairs of distant words of one layer. */
export interface DistantPairColumnsPayload extends TokenPairColumnsPayload {
  group: string[];
}

/** links_table of one layer. */
export interface LinkColumnsPayload extends TokenPairColumnsPayload {
  head: number[];
  kind: string[];
  probability: number[];
}

/** StatisticsViews.pairs when it is computed; the links are of `query_heads` heads. */
export interface PairStatisticsPayload {
  state: "done";
  distances: DistanceColumnsPayload;
  pairs: DistantPairColumnsPayload;
  links: LinkColumnsPayload;
  links_stored: Record<string, number>;
  links_measured: boolean;
  query_heads: number | null;
}

/** agreement_between: two runs, layer by layer. */
export interface AgreementColumnsPayload {
  layer: number[];
  other_layer: number[];
  adjusted_rand: number[];
  low: (number | null)[];
  high: (number | null)[];
  shuffled: number[];
  shuffled_high: number[];
  random: (number | null)[];
  overlap: number[];
  overlap_low: (number | null)[];
  overlap_high: (number | null)[];
  overlap_shuffled: number[];
  overlap_random: (number | null)[];
  count: number[];
  units: number[];
  unit: string[];
}

/** StatisticsViews.agreement when it is computed. */
export interface RunAgreementPayload {
  state: "done";
  rows: AgreementColumnsPayload;
}

// ---- exports: focus_explorer/web/questions/exports.py

/** A row of `tables` or `figures` of choices. */
export interface ExportItemPayload {
  name: string;
  about: string;
  layers: boolean;
}

/** A row of `presets` of choices; millimetres. */
export interface PresetPayload {
  name: string;
  about: string;
  width: number;
  height: number;
}

/** A row of `layers` of the mask's choices: `pairs` is the mean over the heads, each of `parts` has its own mask. */
export interface MaskLayerPayload {
  layer: number;
  pairs: number;
  parts: PartPayload[];
}

/** `mask` of choices. */
export interface MaskChoicesPayload {
  formats: string[];
  layers: MaskLayerPayload[];
  tokens: number;
}

/** choices. */
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

/** export_command. */
export interface ExportCommandPayload {
  command: string;
}

/** `file` of an export. */
export interface ExportFilePayload {
  name: string;
  bytes: number;
  address: string;
}

/** Exports.state, also of export_start and export_stop. */
export interface ExportPayload {
  id: string;
  job: JobPayload;
  file: ExportFilePayload | null;
}

// ---- trainings: focus_explorer/views/training.py, focus_explorer/usecases/training/processes.py

/** `config` of training_summary: the fields of a configuration that the file holds. */
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

/** `settings` of training_summary. */
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

/** `validation` of training_summary; perplexities, `focus` by "k=1" and so on, means over `domains`; empty without text. */
export interface ValidationPayload {
  full?: number;
  scored?: number;
  focus?: Record<string, number>;
  domains?: string[];
}

/** training_summary. */
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
  resumable: boolean;
  usable: boolean;
  owner: string | null;
  out: string;
  created_at: string;
  remaining: number | null;
  texts: string[];
  config: TrainingConfigPayload;
  settings: TrainingSettingsPayload;
  validation: ValidationPayload;
  part: string;
}

/** curves_payload, one mode of one training. */
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

/** The process that was started last, while no row describes it. */
export interface TrainingJobPayload {
  name: string;
  out: string;
  state: "starting" | "stopping" | "stopped" | "failed";
  message: string;
}

/** Trainings.payload; curves by training and mode: focus, full, held-out:NAME. */
export interface TrainingsPayload {
  trainings: TrainingPayload[];
  curves: Record<string, Record<string, CurvePayload>>;
  job: TrainingJobPayload | null;
}

/** Trainings.film; top, membership and places are base64 of (frames, tokens, ...) bytes, bytes and int16. */
export interface FilmPayload {
  training_id: string;
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

/** Trainings.use. */
export interface UsedTrainingPayload {
  sha256: string;
  name: string;
  model: string;
}

/** resume_training. */
export interface ResumedTrainingPayload {
  out: string;
}

// ---- centroid files: focus_explorer/usecases/centroids.py

/** The facts of a training that a file holds. */
export interface CentroidTrainingPayload {
  texts?: string | number | string[];
  domains?: string | number | string[];
  balanced?: string | number | string[];
  loss?: string | number | string[];
  learn?: string | number | string[];
  hard_steps?: string | number | string[];
  training_tokens?: string | number | string[];
  tokens_seen?: string | number | string[];
  steps?: string | number | string[];
  seq_len?: string | number | string[];
  batch?: string | number | string[];
  learning_rate?: string | number | string[];
  train_window?: string | number | string[];
  dtype?: string | number | string[];
  seed?: string | number | string[];
  seconds?: string | number | string[];
  random_seed?: string | number | string[];
}

/** One setting of `focus` of the held-out record. */
export interface HeldOutSettingPayload {
  perplexity: number;
  retained_pairs?: number;
  dominance?: number;
}

/** The held-out record of a file. */
export interface HeldOutPayload {
  full: number;
  scored: number | null;
  focus: Record<string, HeldOutSettingPayload>;
}

/** A card; `problem` in place of `training` and what follows when the file cannot be read. */
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
  training?: CentroidTrainingPayload;
  held_out?: HeldOutPayload | null;
  budget_held_out?: number;
  problem?: string;
}

/** load_files. */
export interface CentroidCardsPayload {
  files: CentroidCardPayload[];
}

/** A row of `layers` of detail. */
export interface SimilarityPayload {
  layer: number;
  similarity: number[][];
}

/** A layer of a run of detail. */
export interface LayerBalancePayload {
  layer: number;
  dominance: number;
  balance: number;
  shares: number[];
}

/** A row of `runs` of detail. */
export interface CentroidRunPayload {
  run_id: string;
  title: string;
  name: string;
  num_tokens: number;
  model_id: string;
  created_at: string;
  layers: LayerBalancePayload[];
}

/** A point of `budgets` of detail; `held_out`: the one that the held-out rows are of. */
export interface BudgetPointPayload {
  budget: HeadExceptionPayload[];
  retained_pairs: number;
  excess: Record<string, number>;
  own: boolean;
  held_out: boolean;
}

/** A number with its interval. */
export interface BudgetIntervalPayload {
  value: number;
  low: number | null;
  high: number | null;
}

/** A row of `held_out` of `budgets` of detail. */
export interface BudgetHeldOutPayload {
  domain: string;
  change: BudgetIntervalPayload;
  full: BudgetIntervalPayload;
  focus: BudgetIntervalPayload;
  retained_pairs: number;
  sequences: number;
}

/** `budgets` of detail. */
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

/** use_budget. */
export interface UsedBudgetPayload {
  sha256: string;
  name: string;
  top_k: number;
  window: number;
  num_sinks: number;
}

/** detail. */
export interface CentroidDetailPayload {
  sha256: string;
  name: string;
  layers: SimilarityPayload[];
  runs: CentroidRunPayload[];
  budgets: BudgetRecordPayload | null;
}

/** A row of `layers` of compare. */
export interface CentroidDistancePayload {
  layer: number;
  pairs: [number, number, number][];
  mean: number;
  worst: number;
  null: number;
  unmatched: [number[], number[]];
}

/** compare: name, first, second for each setting that differs. */
export interface CentroidChangesPayload {
  names: [string, string];
  problem: string;
  layers: CentroidDistancePayload[];
  settings: [
    string,
    string | number | boolean | number[] | HeadExceptionPayload[] | null,
    string | number | boolean | number[] | HeadExceptionPayload[] | null
  ][];
}

// ---- the Runs tab: focus_explorer/views/run.py, focus_explorer/web/tabs/runs.py, focus_explorer/usecases/sql.py

/** run_card. */
export interface RunCardPayload {
  run_id: string;
  title: string;
  name: string;
  note: string;
  tags: string[];
  model_id: string;
  centroids_name: string;
  centroids_sha256: string;
  num_tokens: number;
  added_tokens: string[];
  perplexity_full: number;
  perplexity_focus: number;
  retained_pairs: number;
  dominance: number;
  device: string;
  dtype: string;
  config: ConfigPayload;
  created_at: string;
  deleted_at: string | null;
  owner: string | null;
}

/** load_runs. */
export interface RunCardsPayload {
  runs: RunCardPayload[];
  keep_days: number;
}

/** label_run. */
export interface RunLabelPayload {
  run_id: string;
  name: string;
  note: string;
  tags: string[];
}

/** remove and restore. */
export interface DeletedPayload {
  deleted: boolean;
}

/** run_sql. */
export interface SqlResultPayload {
  columns: string[];
  types: string[];
  rows: (string | number | boolean | null)[][];
  truncated: string;
  seconds: number;
}

/** examples: name and statement. */
export interface SqlExamplesPayload {
  examples: [string, string][];
  seconds: number;
  rows: number;
}
