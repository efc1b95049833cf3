"""The Compare tab: settings, other runs, lengths, missing links, generated text; and what if: a run changed by hand."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from focus_explorer.views.payloads.runs import (
    ConfigPayload,
    Executed,
    JobAnswerPayload,
    NamedRun,
    PredictionPayload,
    SettingValue,
    SpreadPayload,
)


class GridCellPayload(Executed):
    """One measured setting."""

    run_id: str
    kind: Literal["focus", "window", "random"]
    top_k: int
    window_size: int
    num_sinks: int
    assignment: str
    measured_at: str
    scored: int
    perplexity_full: float
    perplexity_focus: float
    delta_mean: float
    delta_low: float | None
    delta_high: float | None
    retained_pairs: float
    dominance: float | None
    threads: int
    repeats: int
    attention_full: float
    attention_full_low: float
    attention_full_high: float
    attention_focus: float
    attention_focus_low: float
    attention_focus_high: float
    total_full: float
    total_focus: float


class GridValuesPayload(TypedDict):
    """Values worth measuring."""

    top_k: list[int]
    window: list[int]


class GridSettingPayload(TypedDict):
    """The run's own setting."""

    top_k: int
    window: int
    num_sinks: int


class MeasuredGrid(TypedDict):
    """Measured settings of a run."""

    cells: list[GridCellPayload]
    suggested: GridValuesPayload
    setting: GridSettingPayload
    num_groups: int


class GridPayload(MeasuredGrid, JobAnswerPayload):
    """Measured settings of a run, and the job that measures more."""


class PartnerPayload(NamedRun):
    """Another run of the same tokens."""

    perplexity_focus: float
    retained_pairs: float


class PartnersPayload(TypedDict):
    """Other runs of the same tokens, newest first."""

    runs: list[PartnerPayload]


class MatchedLayerPayload(TypedDict):
    """Groups of one layer of two runs, matched."""

    layer: int
    names: list[int]
    overlap: float
    rand: float


class LossDifferencePayload(TypedDict):
    """Mean loss difference in nats with its 95 % interval, null for one scored token."""

    mean: float
    low: float | None
    high: float | None
    count: int


class MatchedRunsPayload(TypedDict):
    """Two runs of the same tokens; `top` is base64 of bytes, layer by layer."""

    layers: list[MatchedLayerPayload]
    top: str
    losses: list[float | None]
    difference: LossDifferencePayload


class PerplexityPayload(TypedDict):
    """Perplexity by mode."""

    full: float
    focus: float


class StagePayload(TypedDict):
    """Times of a stage by mode; `peak_memory_bytes` by mode."""

    full: NotRequired[SpreadPayload]
    focus: NotRequired[SpreadPayload]
    peak_memory_bytes: dict[str, int | None]


class RunSummary(Executed):
    """The numbers of one run; `special_tokens`: "auto", "none", or None for a run of a version before 0.3."""

    run_id: str
    num_tokens: int
    special_tokens: str | None
    added_tokens: list[str]
    scored_tokens: int
    perplexity: PerplexityPayload
    retained_pairs: float
    distant_pairs_kept: float | None
    dominance: float
    milliseconds: dict[str, StagePayload]
    config: ConfigPayload
    model: str
    centroids: str
    notes: list[str]
    changes: list[str]
    db: str


class RunSummaryPayload(RunSummary):
    """The numbers of one run, and what it is called."""

    title: str
    name: str


class RunNumbersPayload(TypedDict):
    """The numbers of two runs of any texts, and the settings that differ; `titles`: what those are called."""

    first: RunSummaryPayload
    second: RunSummaryPayload
    settings_that_differ: dict[str, list[SettingValue]]
    titles: dict[str, str]


class LengthPayload(Executed):
    """One layer timed at one length."""

    run_id: str
    layer: int
    tokens: int
    top_k: int
    window_size: int
    measured_at: str
    full_median: float
    full_low: float
    full_high: float
    focus_median: float
    focus_low: float
    focus_high: float
    routing_median: float
    retained_pairs: float
    repeats: int
    threads: int


class CrossingPayload(TypedDict):
    """From which length Focus stays faster."""

    kind: Literal["interpolated", "from the start", "never", "mixed"]
    tokens: float | None
    below: int | None
    above: int | None
    clear: bool


class LayerLengthsPayload(TypedDict):
    """Measured lengths of one layer and where the times cross."""

    points: list[LengthPayload]
    crossing: CrossingPayload | None


class MeasuredLengths(TypedDict):
    """Measured lengths by layer."""

    layers: dict[str, LayerLengthsPayload]


class LengthsPayload(MeasuredLengths, JobAnswerPayload):
    """Measured lengths by layer, and the job that measures more."""


class MissingLinkPayload(TypedDict):
    """A dropped pair of one query head; `predicted` in nats to first order, `nll` once it was really added."""

    layer: int
    head: int
    query: int
    key: int
    probability: float
    predicted: float
    nll: float | None
    random_keeps: bool | None


class ExplainedTokenPayload(TypedDict):
    """The dropped pairs that would have helped one token, verified ones first; losses in nats."""

    token: int
    measured_at: str
    nll_full: float
    nll_focus: float
    nll_together: float | None
    dropped_pairs: int
    links: list[MissingLinkPayload]


class MeasuredLinks(TypedDict):
    """Tokens that were explained, and one of them."""

    tokens: list[int]
    explained: ExplainedTokenPayload | None


class MissingLinksPayload(MeasuredLinks, JobAnswerPayload):
    """Tokens that were explained, one of them, and the job that explains another."""


class HeadCostPayload(TypedDict):
    """A key-value head: change of the loss by full attention in it alone, estimated, and that loss where measured (nats
    per token); `dropped`: share of full attention outside the mask, None until measured."""

    layer: int
    head: int
    estimated: float
    nll: float | None
    dropped: float | None


class MeasuredHeads(TypedDict):
    """What was measured of a run's heads, measured ones first; None and empty before that."""

    num_tokens: int | None
    nll_full: float | None
    nll_focus: float | None
    heads: list[HeadCostPayload]


class HeadCostsPayload(MeasuredHeads, JobAnswerPayload):
    """What was measured of a run's heads, and the job that measures them."""


class GeneratedSidePayload(TypedDict):
    """Text generated in one mode; `groups`: for each token, group by layer number."""

    text: str
    ids: list[int]
    pieces: list[str]
    groups: list[dict[str, int]]
    ms: list[float]


class GeneratedPayload(TypedDict):
    """Generated text by mode; empty before the first token."""

    full: NotRequired[GeneratedSidePayload]
    focus: NotRequired[GeneratedSidePayload]
    prompt_tokens: NotRequired[int]


class GenerationPayload(JobAnswerPayload):
    """A generation and its job."""

    sides: GeneratedPayload


class ChangedLayerPayload(TypedDict):
    """A layer: tokens whose most probable group differs, and its share of pairs kept before and after."""

    layer: int
    moved: int
    kept_before: float
    kept_after: float


class WhatIfResultPayload(TypedDict):
    """A changed run; losses are means in nats per token of the first `num_tokens` tokens. `changes`: base64 of a
    float32 a token, its loss with the changes minus without. `other_top`: positions whose most probable token
    differs."""

    num_tokens: int
    nll_full: float
    nll_before: float
    nll_after: float
    difference: LossDifferencePayload
    changes: str
    other_top: list[int]
    layers: list[ChangedLayerPayload]


class ChangedPairsPayload(TypedDict):
    """Pairs of one layer that the changes add and drop, mean over its heads: in all, and base64 of float32 in blocks of
    the lower triangle, row by row, as a share of each block's pairs."""

    layer: int
    num_tokens: int
    block_size: int
    gained: float
    lost: float
    gained_shares: str
    lost_shares: str


class ChangedPredictionPayload(TypedDict):
    """The most probable tokens at one place without and with the changes; None beyond the tokens that were read."""

    token: int
    before: PredictionPayload | None
    after: PredictionPayload | None


class WhatIfMeasured(TypedDict):
    """What is known of a changed run; all None before it was measured."""

    result: WhatIfResultPayload | None
    pairs: ChangedPairsPayload | None
    prediction: ChangedPredictionPayload | None


class WhatIfPayload(WhatIfMeasured, JobAnswerPayload):
    """What is known of a changed run, the job that measures or saves it, the command that makes and saves it, and the
    newest run saved from this one."""

    saved: str | None
    command: str
