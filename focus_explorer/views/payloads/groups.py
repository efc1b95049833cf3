"""The Groups tab: word classes, purity and characteristic tokens of every group, and the agreement of layers."""

from __future__ import annotations

from typing import TypedDict


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
