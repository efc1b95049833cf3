"""The Runs tab: stored runs as cards, their labels, and SQL."""

from __future__ import annotations

from typing import TypedDict

from focus_explorer.views.payloads.runs import ConfigPayload


class RunCardPayload(TypedDict):
    """One run of the list; `deleted_at` is None while it is kept, `owner` where it belongs to no user."""

    run_id: str
    title: str
    name: str
    note: str
    tags: list[str]
    model_id: str
    centroids_name: str
    centroids_sha256: str
    num_tokens: int
    added_tokens: list[str]
    perplexity_full: float
    perplexity_focus: float
    retained_pairs: float
    dominance: float
    device: str
    dtype: str
    config: ConfigPayload
    created_at: str
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
