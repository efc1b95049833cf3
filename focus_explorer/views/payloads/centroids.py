"""The Centroids and Training tabs: files, what is in one, what differs between two; trainings and their curves."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from focus_explorer.views.payloads.runs import ConfigPayload, HeadExceptionPayload, SettingValue

Fact = str | float | list[str]  # of a training, as its file has it


class TrainedOnPayload(TypedDict):
    """Names of domains or texts that a run's centroids were trained on; empty where that is not known."""

    texts: list[str]


class HeldOutSettingPayload(TypedDict):
    """Held-out results of one setting."""

    perplexity: float
    retained_pairs: NotRequired[float]
    dominance: NotRequired[float]


class HeldOutPayload(TypedDict):
    """Held-out results that a file holds."""

    full: float
    scored: int | None
    focus: dict[str, HeldOutSettingPayload]


class CentroidCardPayload(TypedDict):
    """A file, and how many runs used it.

    `owner` is None where it belongs to no user; `budget_held_out` counts the domains that its budget was measured on,
    see `BudgetRecordPayload.held_out`; `problem` stands in place of `training` and what follows when it cannot be read.
    """

    name: str
    sha256: str
    base_model: str
    num_groups: int
    routing_dim: int
    layers: int
    config: ConfigPayload
    added: str | None
    owner: str | None
    runs: int
    training: NotRequired[dict[str, Fact]]
    held_out: NotRequired[HeldOutPayload | None]
    budget_held_out: NotRequired[int]
    problem: NotRequired[str]


class CentroidCardsPayload(TypedDict):
    """Every shipped and uploaded file."""

    files: list[CentroidCardPayload]


class SimilarityPayload(TypedDict):
    """Cosines of the centroids of one layer."""

    layer: int
    similarity: list[list[float]]


class LayerBalancePayload(TypedDict):
    """Group sizes of one layer of a run."""

    layer: int
    dominance: float
    balance: float
    shares: list[float]


class CentroidRunPayload(TypedDict):
    """A run that used a file."""

    run_id: str
    title: str
    name: str
    num_tokens: int
    layers: list[LayerBalancePayload]


class BudgetPointPayload(TypedDict):
    """A measured budget; `own`: the file's, `held_out`: the one that the held-out rows are of."""

    budget: list[HeadExceptionPayload]
    retained_pairs: float
    excess: dict[str, float]
    own: bool
    held_out: bool


class BudgetIntervalPayload(TypedDict):
    """A number with its interval, null where there is none."""

    value: float
    low: float | None
    high: float | None


class BudgetHeldOutPayload(TypedDict):
    """Held-out text of one domain; `change`: perplexity over that of full attention, minus 1."""

    domain: str
    change: BudgetIntervalPayload
    full: BudgetIntervalPayload
    focus: BudgetIntervalPayload
    retained_pairs: float
    sequences: int


class BudgetRecordPayload(TypedDict):
    """Measured budgets of a file; `target`: "loss" or "pairs" and its number; `calibration`: sequences by domain."""

    points: list[BudgetPointPayload]
    target: tuple[str, float]
    met: bool
    calibration: dict[str, int]
    held_out: list[BudgetHeldOutPayload]
    held_out_own: bool
    before_factors: bool
    before_balance: bool
    before_growth: bool
    before_text_sinks: bool
    pairs_counted_at: int | None


class UsedBudgetPayload(TypedDict):
    """The file that has a chosen budget, and the settings it was measured at."""

    sha256: str
    name: str
    top_k: int
    window: int
    num_sinks: int


class CentroidDetailPayload(TypedDict):
    """What is in a file, and the runs that used it; `budgets` is null without a readable record of them."""

    sha256: str
    name: str
    layers: list[SimilarityPayload]
    runs: list[CentroidRunPayload]
    budgets: BudgetRecordPayload | None


class LayerMatch(TypedDict):
    """Groups of a layer of two files, matched: pairs (group, group, distance), and groups without a partner."""

    pairs: list[tuple[int, int, float]]
    mean: float
    worst: float
    null: float
    unmatched: tuple[list[int], list[int]]


class CentroidDistancePayload(LayerMatch):
    """Matched groups of one layer of two files."""

    layer: int


class CentroidChangesPayload(TypedDict):
    """What differs between two files; settings: name, first, second."""

    names: tuple[str, str]
    problem: str
    layers: list[CentroidDistancePayload]
    settings: list[tuple[str, SettingValue, SettingValue]]


class TrainingConfigPayload(TypedDict):
    """The fields of a configuration that a training recorded, `window` that of its steps on the soft gate.

    `exceptions`: layers and heads with a setting of their own; `budget_id`: what tells them from others.
    """

    num_groups: NotRequired[int]
    routing_dim: NotRequired[int]
    top_k: NotRequired[int]
    window: NotRequired[int]
    window_growth: NotRequired[tuple[int, int]]
    exceptions: NotRequired[int]
    budget_id: NotRequired[str]
    num_sinks: NotRequired[int]
    gate: NotRequired[str]
    normalisation: NotRequired[str]
    assignment: NotRequired[str]


class TrainingSettingsPayload(TypedDict):
    """Settings of a training; `result_window`, that of later use, is missing where an earlier version recorded it."""

    seq_len: NotRequired[int]
    batch: NotRequired[int]
    loss: NotRequired[str]
    distil_weight: NotRequired[float]
    hard: NotRequired[bool]
    hard_steps: NotRequired[int]
    learn: NotRequired[str]
    result_window: NotRequired[int]
    accumulation: NotRequired[int]
    learning_rate: NotRequired[float]


class ValidationPayload(TypedDict):
    """Held-out perplexities, `focus` by "k=1" and so on, means over `domains`; empty without held-out text."""

    full: NotRequired[float]
    scored: NotRequired[int]
    focus: NotRequired[dict[str, float]]
    domains: NotRequired[list[str]]


class TrainingPayload(TypedDict):
    """One training."""

    training_id: str
    name: str
    status: Literal["running", "stopping", "done", "stopped", "failed", "interrupted"]
    message: str
    kind: str
    model_id: str
    device: str
    dtype: str
    seed: int
    steps: int
    step: int
    elapsed: float
    loss: float | None
    perplexity: float | None
    layer_error: float | None
    dominance: float | None
    dominance_max: float | None
    retained_pairs: float | None
    tokens_per_second: float | None
    owner: str | None
    resumable: bool
    usable: bool
    out: str
    created_at: str
    remaining: float | None
    texts: list[str]
    config: TrainingConfigPayload
    settings: TrainingSettingsPayload
    validation: ValidationPayload
    part: str


class CurvePayload(TypedDict):
    """One mode of one training, thinned; `stride`: steps a point is the mean of."""

    step: list[int]
    loss: list[float | None]
    layer_error: list[float | None]
    dominance: list[float | None]
    dominance_max: list[float | None]
    retained_pairs: list[float | None]
    tokens_per_second: list[float | None]
    learning_rate: list[float | None]
    stride: int
    last: int


TrainingJobState = Literal["starting", "stopping", "stopped", "failed"]


class TrainingJobPayload(TypedDict):
    """The process started last, while no row describes it."""

    name: str
    out: str
    state: TrainingJobState
    message: str


class TrainingsPayload(TypedDict):
    """Trainings, and curves by training and mode: focus, full, and held-out:NAME for each domain of held-out text."""

    trainings: list[TrainingPayload]
    curves: dict[str, dict[str, CurvePayload]]
    job: TrainingJobPayload | None


class UsedTrainingPayload(TypedDict):
    """A finished training added to the centroid files."""

    sha256: str
    name: str
    model: str


class ResumedTrainingPayload(TypedDict):
    """A resumed training."""

    out: str


class FilmPayload(TypedDict):
    """One layer's groups of a text under the files a training kept: F frames, T tokens.

    `top` (F, T) bytes; `membership` (F, T, B) bytes, B as K needs; `places` (F, T, 2) int16, at one scale; all base64.
    `top_k` and `window` are those of heads without a setting of their own; `has_budget` says whether others have one.
    `spread`: share of the variance that the plane of the places shows. `waiting`: files that are not in yet.
    """

    texts: list[str]
    text: str
    pieces: list[str]
    layers: list[int]
    layer: int
    num_groups: int
    top_k: int
    window: int
    window_growth: tuple[int, int] | None
    num_sinks: int
    has_budget: bool
    sliding_window: int | None
    steps: list[int]
    top: str
    membership: str
    places: str
    spread: float
    waiting: int
