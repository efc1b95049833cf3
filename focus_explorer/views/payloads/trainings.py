"""The Training tab: trainings and their curves."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


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

    training_id: str
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
