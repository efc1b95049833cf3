"""The Groups, Sparsity and Statistics tabs: groups and their names, pairs and attention, statistics as columns."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from focus_explorer.views.payloads.runs import JobPayload


class GroupPayload(TypedDict):
    """One group of one layer; None where it has no tokens or was not measured."""

    tokens: int
    share: float
    balance: float
    flags: list[str]
    classes: list[int]
    top_class: int | None
    purity: float | None
    base_rate: float | None
    null_mean: float | None
    null_high: float | None
    characteristic: list[tuple[str, float, int]]
    attention_mass: float | None
    confidence: float | None
    entropy: float | None


class GroupsPayload(TypedDict):
    """Every group of every layer, and what the text and the baselines are."""

    groups: list[list[GroupPayload]]
    class_names: list[str]
    class_shares: list[float]
    classes: str
    seed: int
    draws: int
    prior_size: float
    most_q: float
    attention_tokens: int | None
    attention_heads: int | None


class TraitPayload(TypedDict):
    """A trait and a group: `share` of the group's tokens, `base` of all; `covered`: of those with the trait; `p_value`:
    probability that the best of all traits does as well in a group drawn at random."""

    trait: str
    phi: float
    share: float
    base: float
    covered: float
    p_value: float


class GroupNamePayload(TypedDict):
    """A group's name from statistics, empty where nothing is clear; `given`: the one that people gave it."""

    name: str
    given: str | None
    evidence: list[TraitPayload]


class GroupNamesPayload(TypedDict):
    """Names by layer and group, and what they had to exceed: `random` by layer, None where it was not measured."""

    names: list[list[GroupNamePayload]]
    traits: int
    random: list[float | None]
    least_phi: float
    least_share: float
    most_p_value: float


class LayerAgreementPayload(TypedDict):
    """Adjusted Rand index of every two layers; `shuffled`: least and most of neighbours with one of them shuffled."""

    agreement: list[list[float]]
    shuffled: tuple[float, float] | None
    pairs: int
    seed: int


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


class ComputingPayload(TypedDict):
    """Statistics that are still being computed."""

    state: Literal["computing"]
    fraction: float


class IntervalColumns(TypedDict):
    """Ends of intervals."""

    low: list[float | None]
    high: list[float | None]


class StatisticColumnsPayload(TypedDict):
    """Rows of statistics as columns; `decimals`: null for a share."""

    title: list[str]
    meaning: list[str]
    family: list[str]
    decimals: list[int | None]
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
    piece: list[str]
    uses: list[int]
    uses_in_text: list[int]
    z: list[float]
    q_value: list[float]


class CategoryColumnsPayload(IntervalColumns):
    """Word categories in the groups of one layer."""

    layer: list[int]
    group: list[str]
    scheme: list[str]
    category: list[str]
    share: list[float | None]
    share_of_text: list[float]
    lift: list[float | None]
    q_value: list[float | None]
    random: list[float | None]


class LayerStatisticsPayload(TypedDict):
    """Statistics of the groups of one layer."""

    state: Literal["done"]
    groups: StatisticColumnsPayload
    characteristic: CharacteristicColumnsPayload
    categories: CategoryColumnsPayload


class DistanceColumnsPayload(IntervalColumns):
    """Pairs by distance of one layer and of the mean over layers (layer None)."""

    layer: list[int | None]
    first: list[int]
    last: list[int]
    pairs: list[int]
    kept: list[float]
    share: list[float | None]
    shuffled: list[float | None]
    random: list[float | None]
    random_low: list[float | None]
    random_high: list[float | None]
    window_only: list[float | None]


class TokenPairColumnsPayload(TypedDict):
    """Ranked pairs of tokens of one layer."""

    layer: list[int]
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


class AgreementColumnsPayload(IntervalColumns):
    """Agreement of two runs, layer by layer."""

    layer: list[int]
    adjusted_rand: list[float]
    shuffled: list[float]
    random: list[float | None]
    overlap: list[float]
    overlap_low: list[float | None]
    overlap_high: list[float | None]
    overlap_shuffled: list[float]
    overlap_random: list[float | None]


class RunAgreementPayload(TypedDict):
    """Agreement of two runs."""

    state: Literal["done"]
    rows: AgreementColumnsPayload
