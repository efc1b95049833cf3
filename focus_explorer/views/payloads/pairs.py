"""The Sparsity tab: parts of a mask, pairs by distance, and full attention under the mask."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class MaskTilePayload(TypedDict):
    """A rectangle of a mask: base64 of `bytes`-byte integers; rows and keys: first and one past the last."""

    block_size: int
    rows: tuple[int, int]
    keys: tuple[int, int]
    num_rows: int
    num_columns: int
    causes: list[str]
    bytes: int
    counts: str


class DistancePayload(TypedDict):
    """Pairs of one layer by distance and cause, mean over its heads, with the shares of both baselines."""

    first: list[int]
    last: list[int]
    causes: list[str]
    counts: list[list[float]]
    sharing: float
    beyond: list[float | None]
    shuffled: list[float]
    window_only: list[float]


class DistanceMeanPayload(TypedDict):
    """Shares of pairs by distance, mean over layers."""

    first: list[int]
    last: list[int]
    causes: list[str]
    pairs: list[int]
    layers: int
    shares: list[list[float]]
    kept_least: list[float]
    kept_most: list[float]
    shuffled: list[float]
    window_only: list[float]
    sharing: list[float]
    beyond: list[float | None]
    layer_shuffled: list[float]
    layer_window_only: list[float]


class AttentionMassPayload(TypedDict):
    """Share of full attention by cause, layers by heads."""

    state: Literal["done"]
    num_tokens: int
    mass_kept: list[list[float]]
    distant_mass_kept: list[list[float | None]]
    local: list[list[float]]
    sinks: list[list[float]]
    grouped: list[list[float]]
    dropped: list[list[float]]
    sharing: list[float]


class AttentionRunningPayload(TypedDict):
    """A measurement of attention that is running."""

    state: Literal["running"]
    stage: str
    fraction: float


class AttentionPlannedPayload(TypedDict):
    """No measurement of attention yet, or one that failed."""

    state: Literal["none", "failed"]
    num_tokens: int
    whole: int
    problem: NotRequired[str]


class AttentionLinksPayload(TypedDict):
    """Strongest links: head, query, key, probability, affinity."""

    columns: list[str]
    dropped: list[tuple[int, int, int, float, float]]
    kept: list[tuple[int, int, int, float, float]]
