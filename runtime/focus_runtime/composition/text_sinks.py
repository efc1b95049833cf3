"""Sinks that stand where the text puts them: tokens whose hidden states look like the first token's.

Models give much attention to few tokens of enormous hidden states. The first token is always one, and `num_sinks` keeps
it; others stand in the middle of a text, a different token in every text. Where the setting `text_sinks` is given, a
token whose input of a layer has at least that cosine similarity with the first token's belongs to all groups of that
layer and of every later one. Earlier tokens alone decide, so a text continued from a cache has the same sinks.

Shape suffixes: B batch, T new tokens, E model width.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from focus_runtime.composition.cache import GroupHistory
from focus_runtime.config import FocusConfig
from focus_runtime.routing.router import Assignment


class FoundSinks(threading.local):
    """Sinks among the tokens of this thread's running pass, layer after layer.

    Attributes:
        layer: the latest layer that looked; the next pass begins with a lower one, or the same.
        tokens: (B, T) bool, found up to there; None before the first layer.
    """

    def __init__(self) -> None:
        self.layer = -1
        self.tokens: Tensor | None = None

    def __reduce__(self) -> tuple[type[FoundSinks], tuple[()]]:
        """A copied or pickled model starts without a pass."""
        return FoundSinks, ()


def with_text_sinks(
    assignment: Assignment,
    hidden_BTE: Tensor,
    padding_BT: Tensor | None,
    history: GroupHistory | None,
    config: FocusConfig,
    layer: int,
    found: FoundSinks,
) -> Assignment:
    """The same groups, sinks in all of them.

    Args:
        assignment: what the router decided for the new tokens.
        hidden_BTE: the layer's input.
        padding_BT: (B, T) bool of the new tokens, True for real ones; None when all are.
        history: of the cache layer, which keeps the first token's input; None without a cache.
        config: settings in force.
        layer: layer number.
        found: of the pass; it is brought up to this layer.
    """
    if layer <= found.layer or found.tokens is None or found.tokens.shape != hidden_BTE.shape[:2]:
        found.tokens = torch.zeros(hidden_BTE.shape[:2], dtype=torch.bool, device=hidden_BTE.device)
    found.layer, known_BT = layer, found.tokens.to(hidden_BTE.device)
    first_BE, position_BT = _first_input(hidden_BTE, padding_BT, history)
    if config.text_sinks is not None and layer >= config.text_sinks_from:
        alike_BT = torch.nn.functional.cosine_similarity(hidden_BTE.float(), first_BE[:, None].float(), dim=-1)
        known_BT = known_BT | ((alike_BT >= config.text_sinks) & (position_BT >= config.num_sinks))
        if padding_BT is not None:
            known_BT = known_BT & padding_BT
    found.tokens = known_BT
    return assignment.in_all_groups(known_BT)


def _first_input(hidden_BTE: Tensor, padding_BT: Tensor | None, history: GroupHistory | None) -> tuple[Tensor, Tensor]:
    """(B, E) the first real token's input of this layer, and (B, T) positions counted from that token."""
    batch, new = hidden_BTE.shape[:2]
    count_T = torch.arange(new, device=hidden_BTE.device)
    if history is not None and history.seen and history.first_input is not None:
        real_B = history.first_real
        before_B1 = history.seen - (torch.zeros(batch, dtype=torch.int64) if real_B is None else real_B)[:, None]
        return history.first_input.to(hidden_BTE.device), before_B1.to(hidden_BTE.device) + count_T
    start_B = torch.zeros(batch, dtype=torch.int64, device=hidden_BTE.device)
    if padding_BT is not None:
        start_B = padding_BT.to(torch.int8).argmax(dim=1)
    first_BE = hidden_BTE[torch.arange(batch, device=hidden_BTE.device), start_B].detach()
    if history is not None:
        history.first_input = first_BE.clone()
    return first_BE, count_T - start_B[:, None]
