// Types that many modules share and that no class defines.

import * as P from "./payloads.js";
import { Selection } from "./selection.js";
import { Tooltip } from "./tooltip.js";

export type Theme = "light" | "dark";

// ---- elements

export type Child = Node | string | number | null | undefined;

/** An event of the page; handlers read the properties of its target without a cast. */
export type UiEvent<E> = E & { target: any; currentTarget: any };

export interface Attributes {
  [name: string]: string | number | boolean | null | undefined | ((event: any) => unknown);
  onclick?: (event: UiEvent<MouseEvent>) => unknown;
  onchange?: (event: UiEvent<Event>) => unknown;
  oninput?: (event: UiEvent<Event>) => unknown;
  onsubmit?: (event: UiEvent<SubmitEvent>) => unknown;
  onclose?: (event: UiEvent<Event>) => unknown;
  onblur?: (event: UiEvent<FocusEvent>) => unknown;
  onfocus?: (event: UiEvent<FocusEvent>) => unknown;
  onkeydown?: (event: UiEvent<KeyboardEvent>) => unknown;
  onmouseenter?: (event: UiEvent<MouseEvent>) => unknown;
  onmouseleave?: (event: UiEvent<MouseEvent>) => unknown;
  onmousemove?: (event: UiEvent<MouseEvent>) => unknown;
}

/** A rectangle of the window that a tooltip points at. */
export interface Target {
  left: number;
  right: number;
  top: number;
  bottom: number;
  width: number;
}

/** The span of a token, or what follows its line end. */
export type TokenSpan = HTMLElement & { fxPos: number };

/** A closed `<details>` whose content is made when it opens. */
export type LazyDetails = HTMLDetailsElement & { refresh: () => void };

// ---- charts

/** A point of a chart as Plotly's events describe it. */
export interface PlotPoint {
  x: any;
  y: any;
  z: number;
  pointNumber: any;
  customdata: any;
  data: any;
}

export interface PlotEvents {
  hover: (point: PlotPoint) => Child | Child[];
  click?: (point: PlotPoint) => unknown;
}

/** What a chart needs of the application that it belongs to. */
export interface PlotHost {
  root: HTMLElement;
  tooltip: Tooltip;
}

/** What Plotly says of a pointer over a chart. */
export interface PlotPointEvent {
  points: PlotPoint[];
  event: MouseEvent;
}

/** Ends of axes after a zoom, such as `xaxis.range[0]`. */
export type PlotZoom = { [end in `${"x" | "y"}axis.range[${0 | 1}]`]?: number } & { "xaxis.autorange"?: boolean };

/** Plotly's events that the charts listen to; a selection that is let go of has none. */
export interface PlotElementEvents {
  plotly_hover: PlotPointEvent;
  plotly_click: PlotPointEvent;
  plotly_unhover: PlotPointEvent;
  plotly_relayout: PlotZoom;
  plotly_doubleclick: undefined;
  plotly_selected: { points?: PlotPoint[] } | undefined;
}

/** An element that Plotly draws in. */
export type PlotElement = HTMLElement & {
  on: <E extends keyof PlotElementEvents>(event: E, handler: (event: PlotElementEvents[E]) => unknown) => void;
  fxRequested?: { data: object[]; layout: object; events: PlotEvents };
  fxEvents?: PlotEvents;
  fxHidden?: boolean;
};

// ---- the server

/** A problem in one sentence, in place of an answer. */
export interface ErrorPayload {
  error: string;
  deleted?: boolean; // the run was deleted and can be brought back
}

export type Answer<T> = (T & { error?: undefined }) | ErrorPayload;

/** The requests of focus_explorer/web/requests/table.py and their answers. */
export interface Answers {
  layer_cells: P.LayerCellsPayload;
  group_orders: P.GroupOrdersPayload;
  token_attention: P.AttentionOfTokenPayload;
  token_attention_start: P.AttentionOfTokenPayload;
  token_attention_stop: P.AttentionOfTokenPayload;
  live_groups: P.LiveTextPayload;
  predictions: P.PredictionsPayload;
  prediction_changes: P.PredictionChangesPayload;
  timings: P.TimingsPayload;
  trained_on: P.TrainedOnPayload;
  word_classes: P.WordClassesPayload;
  groups: P.GroupsPayload;
  group_names: P.GroupNamesPayload;
  name_group: P.GroupNamePayload;
  agreement: P.LayerAgreementPayload;
  map: P.MapPayload;
  map_neighbours: P.NeighboursPayload;
  mask_tile: P.MaskTilePayload;
  pair_distances: P.DistancePayload;
  pair_distances_mean: P.DistanceMeanPayload;
  attention: AttentionPayload;
  attention_links: P.AttentionLinksPayload;
  measure_attention: AttentionPayload;
  stop_attention: AttentionPayload;
  compare_grid: P.GridPayload;
  compare_grid_start: P.GridPayload;
  compare_stop: P.JobAnswerPayload;
  compare_partners: P.PartnersPayload;
  compare_beside: P.MatchedRunsPayload;
  compare_numbers: P.RunNumbersPayload;
  compare_lengths: P.LengthsPayload;
  compare_lengths_start: P.LengthsPayload;
  compare_links: P.MissingLinksPayload;
  compare_links_start: P.MissingLinksPayload;
  compare_heads: P.HeadCostsPayload;
  compare_heads_start: P.HeadCostsPayload;
  what_if: P.WhatIfPayload;
  what_if_start: P.WhatIfPayload;
  what_if_save: P.WhatIfPayload;
  compare_generation: P.GenerationPayload;
  compare_generation_start: P.GenerationPayload;
  statistics: P.StatisticsPayload | P.ComputingPayload;
  statistics_layer: P.LayerStatisticsPayload | P.ComputingPayload;
  statistics_pairs: P.PairStatisticsPayload | P.ComputingPayload;
  statistics_agreement: P.RunAgreementPayload | P.ComputingPayload;
  statistics_measure: P.JobAnswerPayload;
  statistics_stop: P.JobAnswerPayload;
  statistics_job: P.JobAnswerPayload;
  export_choices: P.ExportChoicesPayload;
  export_command: P.ExportCommandPayload;
  export_start: P.ExportPayload;
  export_state: P.ExportPayload;
  export_stop: P.ExportPayload;
}

export type AttentionPayload = P.AttentionMassPayload | P.AttentionRunningPayload | P.AttentionPlannedPayload;

/** Details of a question, such as a layer. */
export type Details = Record<string, unknown>;

/** The server's own form of a question about a run. */
export type AskServer = <K extends keyof Answers>(
  question: { what: K; run: string } & Details,
) => Promise<Answer<Answers[K]>>;

/** Questions of the parts of Compare: their answers hold the job that measures. */
export type JobQuestion = {
  [K in keyof Answers]: Answers[K] extends { job: P.JobPayload | null } ? K : never;
}[keyof Answers];

/** Asks one question about a run. */
export type RequestAnswer = <K extends keyof Answers>(what: K, details?: Details) => Promise<Answer<Answers[K]>>;

/** The server functions of the Explore tab (focus_explorer/web/tabs/explore.py). */
export interface ExplorerServer {
  load_run: (run: string) => Promise<Answer<P.RunPayload>>;
  load_mask: (run: string, layer: number, part: number) => Promise<Answer<P.MaskPayload>>;
  restore?: (run: string) => Promise<Answer<P.DeletedPayload>>; // the page alone has it
  ask: AskServer;
}

/** What can be done to a training, with the answers. */
export interface TrainingActions {
  stop: { asked: boolean };
  resume: P.ResumedTrainingPayload;
  use: P.UsedTrainingPayload;
}

/** The server functions of the Training tab. */
export interface TrainingServer {
  load: (request: { shown: Record<string, Record<string, number>> }) => Promise<Answer<P.TrainingsPayload>>;
  stop: (request: { id: string | null }) => Promise<Answer<TrainingActions["stop"]>>;
  resume: (request: { id: string | null }) => Promise<Answer<TrainingActions["resume"]>>;
  use: (request: { id: string | null }) => Promise<Answer<TrainingActions["use"]>>;
  film: (request: { id: string; layer?: number; text?: string }) => Promise<Answer<P.FilmPayload>>;
}

/** The server functions of the Centroids tab. */
export interface CentroidsServer {
  load: () => Promise<Answer<P.CentroidCardsPayload>>;
  detail: (request: { file: string }) => Promise<Answer<P.CentroidDetailPayload>>;
  compare: (request: { first: string; second: string }) => Promise<Answer<P.CentroidChangesPayload>>;
  use: (request: { file: string; point: number }) => Promise<Answer<P.UsedBudgetPayload>>;
  rename: (request: { file: string; name: string }) => Promise<Answer<P.CentroidCardsPayload>>;
  remove: (request: { file: string }) => Promise<Answer<P.CentroidCardsPayload>>;
}

/** The server functions of the Runs tab. */
export interface RunsServer {
  load: () => Promise<Answer<P.RunCardsPayload>>;
  label: (request: { run: string; name: string; note: string; tags: string[] }) => Promise<Answer<P.RunLabelPayload>>;
  remove: (request: { run: string }) => Promise<Answer<P.DeletedPayload>>;
  restore: (request: { run: string }) => Promise<Answer<P.DeletedPayload>>;
  ask: AskServer;
}

/** The server functions of the SQL box. */
export interface SqlServer {
  query: (sql: string) => Promise<Answer<P.SqlResultPayload>>;
  examples: () => Promise<Answer<P.SqlExamplesPayload>>;
}

// ---- pairs

/** Why a pair of tokens is kept, or that it is dropped: the names of the runtime's mask. */
export type Cause = keyof P.CausesPayload;

// ---- views

/** What a view writes into the address; null removes a key. */
export type Parameters = Record<string, string | number | null>;

/** A tab of the explorer. */
export interface View {
  update: () => void;
  selectionChanged?: () => void;
  part?: string | null;
  parameters?: Parameters;
}

export type { Selection };
