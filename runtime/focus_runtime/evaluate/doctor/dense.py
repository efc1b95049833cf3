"""Focus as one more mask: the model's own eager attention, with a second additive mask of pairs that Focus drops.

Written for the doctor alone, without the code that it examines: of Focus it takes the groups of the tokens, and which
layers are focused.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.observe import replace_assignment
from focus_runtime.evaluate.doctor.scenarios import NotApplicable
from focus_runtime.models.structure import attention_modules
from focus_runtime.routing.router import Assignment, CentroidRouter

EAGER = "eager_attention_forward"  # in the module of every family that uses transformers' attention interface
Groups = dict[int, list[Tensor]]  # by layer, in the order of its calls: (B, T) int64, one bit a group


@contextmanager
def noted_groups(focus: FocusModel) -> Iterator[Groups]:
    """Note the groups that the routers of every focused layer decide, call by call."""
    groups: Groups = defaultdict(list)

    def assign(layer: int, router: CentroidRouter, hidden: Tensor, padding: Tensor | None) -> Assignment:
        assignment = router.own_assignment(hidden, padding=padding)
        groups[layer].append(assignment.membership.clone())
        return assignment

    with replace_assignment(focus, assign):
        yield groups


@contextmanager
def dense_focus(model: nn.Module, groups: Groups, window: int, sinks: int) -> Iterator[None]:
    """Let the eager attention of a model drop the pairs that Focus drops, for the calls whose groups were noted.

    Args:
        model: with eager attention and no composition.
        groups: of the same calls, in the same order.
        window: w, pairs i - j <= w are kept.
        sinks: s, the first s real tokens of a text are kept as keys.
    """
    state = _Passes(groups, window, sinks)
    sources: set[Any] = {sys.modules[type(module).__module__] for module in model.modules()}
    patched = [(source, source.eager_attention_forward) for source in sources if hasattr(source, EAGER)]
    if not patched:
        raise NotApplicable(f"{type(model).__name__} has no eager attention function to mask")
    handles = [model.register_forward_pre_hook(state.begin, with_kwargs=True)]
    for layer, module in attention_modules(model).items():
        if layer in groups:
            handles.append(module.register_forward_pre_hook(lambda *_, layer=layer: state.enter(layer)))
    try:
        for source, eager in patched:
            source.eager_attention_forward = state.masked(eager)
        yield
    finally:
        for handle in handles:
            handle.remove()
        for source, eager in patched:
            source.eager_attention_forward = eager


class _Passes:
    """Groups and positions of all tokens so far, by layer, over the forward passes of a scenario."""

    def __init__(self, groups: Groups, window: int, sinks: int) -> None:
        self.groups, self.window, self.sinks = groups, window, sinks
        self.calls: dict[int, int] = defaultdict(int)  # of each layer, in all passes
        self.looped: dict[int, int] = defaultdict(int)  # of each layer, in this pass
        self.history: dict[tuple[int, int], Tensor] = {}  # groups of the tokens so far, by layer and loop
        self.now: dict[int, Tensor] = {}  # groups of the tokens so far in the running call of a layer
        self.positions: Tensor | None = None  # (B, T) of this pass's whole text, from each document's first token

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Hook before each forward pass: where each row, or each document, begins."""
        self.looped.clear()
        self.positions = None
        mask, positions = kwargs.get("attention_mask"), kwargs.get("position_ids")
        if isinstance(mask, Tensor):
            self.positions = (mask.cumsum(1) - 1).clamp(min=0)
        elif isinstance(positions, Tensor):
            self.positions = positions

    def enter(self, layer: int) -> None:
        """Hook before each call of an attention module: the groups of its new tokens join those before them."""
        new, loop = self.groups[layer][self.calls[layer]], self.looped[layer]
        self.calls[layer] += 1
        self.looped[layer] += 1
        before = self.history.get((layer, loop))
        self.now[layer] = self.history[layer, loop] = new if before is None else torch.cat([before, new], 1)

    def masked(self, eager: Callable[..., Any]) -> Callable[..., Any]:
        """The eager attention function with the second mask."""

        def attend(
            module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
        ) -> Any:
            dropped = self.dropped(getattr(module, "layer_idx", None), query.shape[2], key.shape[2])
            if dropped is not None:
                own = _causal(query, key) if attention_mask is None else attention_mask
                attention_mask = torch.where(dropped[:, None], torch.finfo(query.dtype).min, own)
            return eager(module, query, key, value, attention_mask, **kwargs)

        return attend

    def dropped(self, layer: int | None, queries: int, keys: int) -> Tensor | None:
        """(B, Tq, Tk) bool, pairs that Focus drops in a layer's running call; None in a layer without groups."""
        if layer is None or layer not in self.now:
            return None
        total = self.now[layer]
        count = total.shape[1]
        place = torch.arange(count, device=total.device)
        first = place[None] if self.positions is None else self.positions
        shared = (total[:, -queries:, None] & total[:, None, :]) != 0
        near = (place[-queries:, None] - place[None]) <= self.window
        kept = shared | near | (first < self.sinks)[:, None, :]
        full = torch.zeros(total.shape[0], queries, max(keys, count), dtype=torch.bool, device=total.device)
        full[:, :, :count] = ~kept  # a static cache has more keys than the text, a sliding one fewer
        return full[:, :, :keys] if keys >= count else full[:, :, count - keys : count]


def _causal(query: Tensor, key: Tensor) -> Tensor:
    """Additive causal mask, (1, 1, Tq, Tk), of queries at the end of the keys."""
    queries, keys = query.shape[2], key.shape[2]
    seen = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
    return query.new_zeros(1, 1, queries, keys).masked_fill(~seen, torch.finfo(query.dtype).min)
