"""Sinks that stand where the text puts them: tokens whose hidden states look like the first token's.

Models give much attention to few tokens of enormous hidden states. The first token is always one, and `num_sinks` keeps
it; others stand in the middle of a text, a different token in every text. Where the setting `text_sinks` is given, a
token whose input of a layer has at least that cosine similarity with the first token's belongs to all groups of that
layer and of every later one. Earlier tokens alone decide, so a text continued from a cache has the same sinks.

Shape suffixes: B batch, T new tokens, E model width.
"""

from __future__ import annotations

import functools
import threading

import torch
from torch import Tensor

from focus_runtime.composition.cache import GroupHistory
from focus_runtime.composition.documents import Documents
from focus_runtime.config import FocusConfig
from focus_runtime.routing.router import Assignment

NO_SINK, SINK = torch.tensor([[False]]), torch.tensor([[True]])  # of the one new token of a decode step


@functools.cache
def no_sink(device: torch.device) -> Tensor:
    """`NO_SINK` on a GPU."""
    return NO_SINK.to(device)


class FoundSinks(threading.local):
    """Sinks among the tokens of this thread's latest pass.

    Attributes:
        by_layer: (B, T) bool, found up to a layer and in it. A layer reads the entry of the one before it, so entries
            of an earlier pass are replaced before they are read, and layers that are computed again (gradient
            checkpointing) find what they found.
    """

    def __init__(self) -> None:
        self.by_layer: dict[int, Tensor] = {}

    @property
    def tokens(self) -> Tensor | None:
        """(B, T) bool, found in any layer of a finished pass; None before the first."""
        return self.by_layer[max(self.by_layer)] if self.by_layer else None

    def before(self, layer: int, tokens_BT: Tensor) -> Tensor:
        """(B, T) bool, found in the layers before one; `tokens_BT` gives shape and device."""
        known = self.known_before(layer, tokens_BT.shape, tokens_BT.device)
        return torch.zeros_like(tokens_BT) if known is None else known

    def known_before(self, layer: int, shape: torch.Size, device: torch.device) -> Tensor | None:
        """The same, None where no layer before has looked.

        Args:
            layer: the one that looks.
            shape: (B, T).
            device: of the tokens.
        """
        by_layer = self.by_layer
        known = by_layer.get(layer - 1)  # nearly always there, and looked up in every layer
        if known is None:
            latest = max((index for index in by_layer if index < layer), default=None)
            known = None if latest is None else by_layer[latest]
        if known is None or known.shape != shape:
            return None
        return known if known.device == device else known.to(device)

    def was_found(self, layer: int) -> bool:
        """Whether the one new token of a decode step on the CPU was found in the layers before one."""
        before = self.by_layer.get(layer - 1)  # nearly always one of the two, and looked up in every layer
        return before is SINK or (before is not NO_SINK and bool(self.before(layer, NO_SINK).item()))

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
    documents: Documents | None = None,
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
        documents: packed ones, whose first tokens are looked at; None where every row is one text.
    """
    step = history is not None and history.seen > 0 and padding_BT is None and hidden_BTE.shape[:2] == (1, 1)
    if history is not None and step and hidden_BTE.device.type == "cpu":  # elsewhere the host would wait in every layer
        return _of_a_step(assignment, hidden_BTE, history, config, layer, found)
    if documents is None:
        first_BE, position_BT = _first_input(hidden_BTE, padding_BT, history)
        first_BTE = first_BE[:, None]
    else:
        start_BT = documents.starts()
        first_BTE = hidden_BTE.detach().take_along_dim(start_BT[..., None], dim=1)
        position_BT = torch.arange(hidden_BTE.shape[1], device=hidden_BTE.device) - start_BT
    movable_BT = (position_BT >= config.num_sinks).expand(hidden_BTE.shape[:2])
    known_BT = found.before(layer, movable_BT)
    if config.text_sinks is not None and layer >= config.text_sinks_from:
        alike_BT = torch.nn.functional.cosine_similarity(hidden_BTE.float(), first_BTE.float(), dim=-1)
        known_BT = known_BT | ((alike_BT >= config.text_sinks) & movable_BT)
        if padding_BT is not None:
            known_BT = known_BT & padding_BT
    found.by_layer[layer] = known_BT
    return assignment.in_all_groups(known_BT)


def _of_a_step(
    assignment: Assignment,
    hidden_11E: Tensor,
    history: GroupHistory,
    config: FocusConfig,
    layer: int,
    found: FoundSinks,
) -> Assignment:
    """The same for the one new token of a decode step: few operations, for there is one call in every layer."""
    known_11 = SINK if found.was_found(layer) else NO_SINK
    if not known_11.item() and layer >= config.text_sinks_from and history.seen >= config.num_sinks:
        assert config.text_sinks is not None
        assert history.first_input is not None
        first_E = history.first_input[0]
        alike = torch.nn.functional.cosine_similarity(hidden_11E[0, 0].float(), first_E.float(), dim=0)
        if alike.item() >= config.text_sinks:
            known_11 = SINK
    found.by_layer[layer] = known_11
    return assignment.in_all_groups(known_11) if known_11.item() else assignment


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
