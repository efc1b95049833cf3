"""The Statistics tab: tables as columns."""

from __future__ import annotations

from typing import Literal, TypedDict

from focus_explorer.views.payloads.jobs import JobPayload


class ComputingPayload(TypedDict):
    """Statistics that are still being computed."""

    state: Literal["computing"]
    fraction: float


class StatisticColumnsPayload(TypedDict):
    """Rows of statistics as columns (`views.statistics.SHOWN`)."""

    layer: list[int | None]
    group: list[str | None]
    statistic: list[str]
    category: list[str]
    value: list[float | None]
    low: list[float | None]
    high: list[float | None]
    shuffled: list[float | None]
    shuffled_low: list[float | None]
    shuffled_high: list[float | None]
    random: list[float | None]
    random_low: list[float | None]
    random_high: list[float | None]
    window_only: list[float | None]
    difference: list[float | None]
    difference_low: list[float | None]
    difference_high: list[float | None]
    p_value: list[float | None]
    q_value: list[float | None]
    count: list[int]
    denominator: list[str]
    warning: list[str]
    from_shuffled: list[str | None]
    from_random: list[str | None]


class StatisticsBasisPayload(TypedDict):
    """What the statistics rest on."""

    tokens: int
    units: int
    unit: str
    tagger: str | None
    random_seed: int | None
    attention_tokens: int | None
    notes: list[str]
    length: Literal["few", "rough", "enough"]


class StatisticsMissingPayload(TypedDict):
    """What was not measured yet."""

    tags: bool
    random: bool
    attention: bool


class StatisticsPayload(TypedDict):
    """Statistics of a run and of its layers."""

    state: Literal["done"]
    about: StatisticsBasisPayload
    missing: StatisticsMissingPayload
    run: StatisticColumnsPayload
    layers: StatisticColumnsPayload
    job: JobPayload | None


class CharacteristicColumnsPayload(TypedDict):
    """Characteristic tokens of the groups of one layer."""

    layer: list[int]
    group: list[str]
    kind: list[str]
    rank: list[int]
    piece: list[str]
    uses: list[int]
    uses_in_text: list[int]
    z: list[float]
    p_value: list[float]
    q_value: list[float]


class CategoryColumnsPayload(TypedDict):
    """Word categories in the groups of one layer."""

    layer: list[int]
    group: list[str]
    scheme: list[str]
    category: list[str]
    tokens: list[int]
    group_tokens: list[int]
    share: list[float | None]
    low: list[float | None]
    high: list[float | None]
    share_of_text: list[float]
    lift: list[float | None]
    z: list[float | None]
    p_value: list[float | None]
    q_value: list[float | None]
    random: list[float | None]
    units: list[int]
    unit: list[str]


class LayerStatisticsPayload(TypedDict):
    """Statistics of the groups of one layer."""

    state: Literal["done"]
    groups: StatisticColumnsPayload
    characteristic: CharacteristicColumnsPayload
    categories: CategoryColumnsPayload


class DistanceColumnsPayload(TypedDict):
    """Pairs by distance of one layer and of the mean over layers (layer None)."""

    layer: list[int | None]
    first: list[int]
    last: list[int]
    pairs: list[int]
    kept: list[float]
    share: list[float | None]
    low: list[float | None]
    high: list[float | None]
    shuffled: list[float | None]
    random: list[float | None]
    random_low: list[float | None]
    random_high: list[float | None]
    window_only: list[float | None]
    units: list[int]
    unit: list[str]


class TokenPairColumnsPayload(TypedDict):
    """Ranked pairs of tokens of one layer."""

    layer: list[int]
    rank: list[int]
    query: list[int]
    key: list[int]
    query_piece: list[str]
    key_piece: list[str]
    distance: list[int]
    affinity: list[float]


class DistantPairColumnsPayload(TokenPairColumnsPayload):
    """Strongest pairs of one group that are far apart, of one layer."""

    group: list[str]


class LinkColumnsPayload(TokenPairColumnsPayload):
    """Strongest kept and dropped links of one layer."""

    head: list[int]
    kind: list[str]
    probability: list[float]


class PairStatisticsPayload(TypedDict):
    """Statistics of the pairs of one layer; the links are of `query_heads` heads."""

    state: Literal["done"]
    distances: DistanceColumnsPayload
    pairs: DistantPairColumnsPayload
    links: LinkColumnsPayload
    links_stored: dict[str, int]
    links_measured: bool
    query_heads: int | None


class AgreementColumnsPayload(TypedDict):
    """Agreement of two runs, layer by layer."""

    layer: list[int]
    other_layer: list[int]
    adjusted_rand: list[float]
    low: list[float | None]
    high: list[float | None]
    shuffled: list[float]
    shuffled_high: list[float]
    random: list[float | None]
    overlap: list[float]
    overlap_low: list[float | None]
    overlap_high: list[float | None]
    overlap_shuffled: list[float]
    overlap_random: list[float | None]
    count: list[int]
    units: list[int]
    unit: list[str]


class RunAgreementPayload(TypedDict):
    """Agreement of two runs."""

    state: Literal["done"]
    rows: AgreementColumnsPayload
