"""A stored run, its layers, masks and maps; the list of runs; background work; the export dialog."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

JobState = Literal["waiting", "running", "done", "stopped", "failed"]


class JobPayload(TypedDict):
    """The state of a background job; `seconds_left` where its work is even and some of it is done."""

    kind: str
    run_id: str
    state: Literal["waiting", "running", "stopping", "done", "stopped", "failed"]
    stage: str
    fraction: float
    message: str
    seconds_left: float | None


class JobAnswerPayload(TypedDict):
    """An answer that holds a job alone."""

    job: JobPayload | None


class HeadExceptionPayload(TypedDict):
    """An exception of a budget; without `head` and `query_head` it is for the whole layer."""

    layer: int
    head: NotRequired[int]
    query_head: NotRequired[int]
    top_k: NotRequired[int]
    window: NotRequired[int]
    full: NotRequired[bool]


SettingValue = str | float | bool | list[int] | list[HeadExceptionPayload] | None


class ConfigPayload(TypedDict):
    """FocusConfig as JSON; `budget`, `text_sinks`, `logit_factors` and `window_growth` where there are some.

    `budget_id`: of the configuration of a run with a budget, what tells that from others.
    """

    num_groups: int
    routing_dim: int
    top_k: int
    window: int
    num_sinks: int
    temperature: float
    sinkhorn_iterations: int
    normalisation: str
    assignment: str
    gate: str
    layers: list[int] | None
    budget: NotRequired[list[HeadExceptionPayload]]
    budget_id: NotRequired[str]
    text_sinks: NotRequired[float]
    text_sinks_from: NotRequired[int]
    logit_factors: NotRequired[bool]
    window_growth: NotRequired[tuple[int, int]]


class Executed(TypedDict):
    """On what a model ran."""

    device: str
    dtype: str
    backend: str


class NamedRun(TypedDict):
    """A run by its names, and with what it was made."""

    run_id: str
    name: str
    created_at: str
    model_id: str
    centroids_name: str
    config: ConfigPayload


class RunInfoPayload(NamedRun, Executed):
    """What a run was made with, `setting` in words; `added_tokens`: pieces that the tokenizer put before the text."""

    title: str
    num_tokens: int
    added_tokens: list[str]
    setting: str
    seed: int
    notes: list[str]
    changes: list[str]


class RunGroupPayload(TypedDict):
    """One group of one layer: share of tokens, mean confidence, and its most frequent tokens with their uses."""

    share: float
    confidence: float | None
    tokens: list[tuple[str, int]]


class CausesPayload(TypedDict):
    """Pairs by cause (`CAUSES` of the runtime): counts, or their means over heads."""

    local_only: float
    group_only: float
    local_and_group: float
    sink_only: float
    dropped: float


class PartPayload(TypedDict):
    """Heads of a layer that share a setting, with the pairs of one of them.

    `top_k` is null where `full`, 0 without groups; `heads` are numbers of query heads where `query_heads`, else of
    key-value heads.
    """

    heads: list[int]
    query_heads: bool
    top_k: int | None
    window: int
    full: bool
    retained_pairs: float
    pairs: CausesPayload


class LayerPayload(TypedDict):
    """One layer: largest group, and pairs kept and by cause, means over its heads; `parts` are what these executed."""

    layer: int
    attention_kind: str
    dominance: float
    retained_pairs: float
    sliding_window: int | None
    pairs: CausesPayload
    parts: list[PartPayload]


class QualityPayload(TypedDict):
    """Perplexities, and the mean loss difference in nats with its 95 % interval, null for one scored token."""

    full: float
    focus: float
    scored: int
    delta_mean: float
    delta_low: float | None
    delta_high: float | None


class SpreadPayload(TypedDict):
    """Milliseconds over the repeats."""

    median: float
    low: float
    high: float
    repeats: int


class TimingPayload(SpreadPayload):
    """One mode of one stage: milliseconds over the repeats."""

    mode: str
    stage: str
    sequence_length: int
    peak_memory_bytes: int | None


class LossesPayload(TypedDict):
    """Losses in nats as base64 of float32, one for each token but the first."""

    full: str
    focus: str


class RunPayload(TypedDict):
    """What every view needs of a run; `cells` by layer number, empty for a long run.

    The budget gives every head of `full_layers` full attention.
    """

    run: RunInfoPayload
    num_layers: int
    layer_ids: list[int]
    pieces: list[str]
    top: str
    groups: list[list[RunGroupPayload]]
    layers: list[LayerPayload]
    full_layers: list[int]
    losses: LossesPayload
    quality: QualityPayload
    timings: list[TimingPayload]
    cells: dict[str, LayerCellsPayload]


class TimingsPayload(TypedDict):
    """What was timed of a run so far."""

    timings: list[TimingPayload]


class LayerCellsPayload(TypedDict):
    """One layer by position: base64 of `width`-byte bit sets, and of bytes.

    `part_memberships` where heads differ: by number, the parts with other groups, full attention left out.
    """

    width: int
    membership: str
    probabilities: str
    entropy: str
    part_memberships: NotRequired[dict[str, str]]


class GroupOrdersPayload(TypedDict):
    """By layer, as text: base64 of (T, K) bytes, the groups of every token, the most probable first.

    `fixed`: tokens whose groups are others than their first k, such as text sinks: position, and the set of its groups
    as two words of 32 bits.
    """

    orders: dict[str, str]
    fixed: dict[str, list[tuple[int, int, int]]]


class LayerAttentionOfTokenPayload(TypedDict):
    """What one token attends to in a layer: R rows, the mean over heads and then each head, with N keys each.

    Base64: `keys` of (R, N) int32, -1 for none; `full`, `focus`, `kept` of (R, N) float32, probabilities and the share
    of heads that keep the pair; `full_kept` of (R,) float32, full attention's probability on all pairs Focus keeps.
    """

    layer: int
    rows: int
    keys: str
    full: str
    focus: str
    kept: str
    full_kept: str


class AttentionOfTokenPayload(TypedDict):
    """What is known of a token's attention: null while it is not computed."""

    job: JobPayload | None
    layers: list[LayerAttentionOfTokenPayload] | None


class PredictionPayload(TypedDict):
    """The most probable tokens at one place with their probabilities; `rank` of the real one, from 1."""

    rank: int
    tokens: list[tuple[str, float]]


class PredictionsPayload(TypedDict):
    """Predictions of one token; null in runs stored before 0.2 and for the first token. `changed`: the most probable
    tokens differ, by their ids; several tokens may be written alike."""

    full: PredictionPayload | None
    focus: PredictionPayload | None
    changed: bool | None


class PredictionChangesPayload(TypedDict):
    """`codes`: base64 of a byte a token. Bit 0: the most probable tokens differ; 1: full attention's is the real one;
    2: Focus's is. `stored` is false in runs without predictions."""

    stored: bool
    codes: str


class WordClassesPayload(TypedDict):
    """Word class of every token; `classes` is base64 of bytes."""

    names: list[str]
    classes: str


class MaskPayload(TypedDict):
    """Block counts of one layer: `counts` is base64 of uint32, cause by cause, lower triangle row by row."""

    block_size: int
    num_blocks: int
    causes: list[str]
    counts: str


class MapPayload(TypedDict):
    """Tokens and centroids in two dimensions; `preliminary`: a quick PCA that is not stored."""

    method: str
    parameters: MapParametersPayload
    seed: int
    trustworthiness: float | None
    positions: list[int]
    x: list[float]
    y: list[float]
    centroid_x: list[float]
    centroid_y: list[float]
    preliminary: bool


class NeighboursPayload(TypedDict):
    """Tokens of a map most like one token, by cosine similarity in the full space, among `of` others."""

    token: int
    positions: list[int]
    similarity: list[float]
    of: int


class MapParametersPayload(TypedDict):
    """What a map was made with; `space` names the vectors, `tokens` how many of `of` tokens are drawn."""

    space: NotRequired[str]
    layers: NotRequired[int]
    tokens: NotRequired[int]
    of: NotRequired[int]
    metric: NotRequired[str]
    n_neighbors: NotRequired[int]
    min_dist: NotRequired[float]


class LiveTextPayload(TypedDict):
    """Tokens of the text as it is now. `top`: base64 of bytes, layer by layer, the group of every token; `tokens_read`:
    how many were computed for this answer, in `milliseconds`; `next`: the most probable tokens that follow, with their
    probabilities."""

    pieces: list[str]
    layers: list[int]
    top: str
    tokens_read: int
    milliseconds: float
    next: list[tuple[str, float]]


class RunCardPayload(NamedRun):
    """One run of the list; `deleted_at` is None while it is kept, `owner` where it belongs to no user."""

    title: str
    note: str
    tags: list[str]
    num_tokens: int
    added_tokens: list[str]
    perplexity_full: float
    perplexity_focus: float
    retained_pairs: float
    dominance: float
    device: str
    dtype: str
    deleted_at: str | None
    owner: str | None


class RunCardsPayload(TypedDict):
    """Kept and deleted runs."""

    runs: list[RunCardPayload]
    keep_days: int


class RunLabelPayload(TypedDict):
    """A run's name, note and tags."""

    run_id: str
    name: str
    note: str
    tags: list[str]


class DeletedPayload(TypedDict):
    """Whether a run is deleted now."""

    deleted: bool


class SqlResultPayload(TypedDict):
    """Rows of a SELECT statement."""

    columns: list[str]
    types: list[str]
    rows: list[list[str | float | bool | None]]
    truncated: str
    seconds: float


class SqlExamplesPayload(TypedDict):
    """Names and statements of examples, and the limits."""

    examples: list[tuple[str, str]]
    seconds: float
    rows: int


class ExportItemPayload(TypedDict):
    """A table or figure that can be exported."""

    name: str
    about: str
    layers: bool


class PresetPayload(TypedDict):
    """Size of a figure in millimetres."""

    name: str
    about: str
    width: float
    height: float


class MaskLayerPayload(TypedDict):
    """A layer whose masks can be exported: that of each part of its heads; `pairs` it keeps, mean over its heads."""

    layer: int
    pairs: int
    parts: list[PartPayload]


class MaskChoicesPayload(TypedDict):
    """What can be exported of masks; queries are numbered from 0 to one below `tokens`."""

    formats: list[str]
    layers: list[MaskLayerPayload]
    tokens: int


class ExportChoicesPayload(TypedDict):
    """What can be exported of a run."""

    title: str
    kinds: list[str]
    tables: list[ExportItemPayload]
    formats: list[str]
    mask: MaskChoicesPayload
    figures: list[ExportItemPayload]
    figure_formats: list[str]
    report_formats: list[str]
    presets: list[PresetPayload]


class ExportCommandPayload(TypedDict):
    """The command that writes the same file."""

    command: str


class ExportFilePayload(TypedDict):
    """A finished file and its address."""

    name: str
    bytes: int
    address: str


class ExportPayload(TypedDict):
    """An export and its job."""

    id: str
    job: JobPayload
    file: ExportFilePayload | None
