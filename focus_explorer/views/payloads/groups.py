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
    least_z: float
    attention_tokens: int | None
    attention_heads: int | None


class LayerAgreementPayload(TypedDict):
    """Adjusted Rand index of every two layers; `shuffled`: least and most of neighbours with one of them shuffled."""

    agreement: list[list[float]]
    shuffled: tuple[float, float] | None
    pairs: int
    seed: int
