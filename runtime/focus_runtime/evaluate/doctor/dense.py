"""Focus as one more mask: the model's own eager attention, with a second additive mask of pairs that Focus drops.

It uses none of the code that the doctor examines, only the groups of the tokens in each focused layer.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.observe import replace_assignment
from focus_runtime.evaluate.doctor.scenarios import NotApplicable
from focus_runtime.models.structure import attention_modules, hooked
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

    Pairs i - j <= `window` are kept, and the first `sinks` real tokens of a text as keys.
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
        with hooked(handles):
            yield
    finally:
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
                own = attention_mask
                if own is None:  # causal, with the queries at the end of the keys
                    seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
                    seen = seen.tril(key.shape[2] - query.shape[2])
                    own = query.new_zeros(seen.shape).masked_fill(~seen, torch.finfo(query.dtype).min)
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


EXACT = 2e-4  # of the largest value: rounding of peaked attention in float32, where one wrong pair moves percents


@dataclass(frozen=True, slots=True)
class Entry:
    """The output (B, T, E) of one call of a layer, or of the model: layer None, (B, T, V) logits."""

    layer: int | None
    start: int  # position of the first of its tokens in their row
    real: Tensor | None  # (B, T) bool, False for padding. None: all tokens are real
    value: Tensor


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two records differ."""

    layer: int | None  # None for the logits, or what was made of them
    token: int | None  # position in its row, padding included. None: that has no meaning
    size: float
    logits: float  # the largest difference between logits of the whole scenario


@dataclass
class Trace:
    """All entries of a scenario in the order of the calls, and what it returned."""

    entries: list[Entry] = field(default_factory=list)
    returned: list[Tensor] = field(default_factory=list)

    def of_row(self, row: int, start: int) -> Trace:
        """The entries of one row from one token on, as if they were a separate text."""
        return Trace([Entry(e.layer, 0, None, e.value[row : row + 1, start:]) for e in self.entries])


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The decoder layers: the first list of modules as long as the text model has layers, or the longest list."""
    config: Any = model.config
    count = getattr(config.get_text_config(decoder=True), "num_hidden_layers", None)
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    longest = max((len(modules) for modules in lists), default=0)
    return list(next((modules for size in (count, longest) for modules in lists if len(modules) == size), ()))


@contextmanager
def recorded(model: nn.Module, *, layers: bool = True) -> Iterator[Trace]:
    """Record the logits of every forward pass of a model, and the outputs of its layers unless `layers` is False."""
    trace = Trace()
    start, width, real = 0, 0, None

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal start, width, real
        ids = args[0] if args else kwargs.get("input_ids")
        mask, width = kwargs.get("attention_mask"), 0 if ids is None else ids.shape[1]
        cache = next((kwargs[name] for name in ("cache", "past_key_values") if kwargs.get(name) is not None), None)
        try:
            start = int(cache.get_seq_length())  # type: ignore[union-attr]
        except (AttributeError, TypeError, ValueError):  # there is no cache, or one of linear layers alone
            start = 0
        real = mask[:, -width:].bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None

    def after(index: int | None, output: Any) -> None:
        value = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
        if isinstance(value, Tensor) and value.dim() == 3:
            left_out = max(0, width - value.shape[1])  # logits of the last tokens alone
            trace.entries.append(Entry(index, start + left_out, real, value.detach().float().clone()))

    handles = [model.register_forward_pre_hook(before, with_kwargs=True)]
    for index, layer in enumerate(layers_of(model) if layers else ()):
        handles.append(layer.register_forward_hook(lambda _, __, output, index=index: after(index, output)))
    handles.append(model.register_forward_hook(lambda _, __, output: after(None, output)))
    with hooked(handles):
        yield trace


def first_difference(expected: Trace, found: Trace) -> Difference | None:
    """Where two records of one scenario differ first by more than rounding; None where they agree."""
    pairs = list(zip(expected.entries, found.entries, strict=False))
    logits = max((_errors(a, b).max().item() for a, b in pairs if a.layer is None and _alike(a, b)), default=0.0)
    for a, b in pairs:
        if not _alike(a, b):
            return Difference(a.layer, a.start, float("inf"), logits)
        errors = _errors(a, b)
        real = a.value if a.real is None else a.value[a.real[:, -a.value.shape[1] :]]
        largest = float(real.abs().max()) if real.numel() else 1.0
        wrong = errors > EXACT * largest
        if wrong.any():
            token = int(wrong.any(0).nonzero()[0])
            return Difference(a.layer, a.start + token, float(errors[:, token].max()), logits)
    for x, y in zip(expected.returned, found.returned, strict=True):
        size = float((x.double() - y.double()).abs().max()) if x.shape == y.shape else float("inf")
        if size > (EXACT * float(x.abs().max()) if x.is_floating_point() else 0):
            return Difference(None, None, size, logits)
    if len(expected.entries) != len(found.entries):
        return Difference(None, None, float("inf"), logits)
    return None


def _alike(a: Entry, b: Entry) -> bool:
    return a.layer == b.layer and a.value.shape == b.value.shape


def _errors(a: Entry, b: Entry) -> Tensor:
    """(B, T) largest differences of tokens, 0 for padding."""
    errors = (a.value - b.value).abs().amax(-1)
    errors = torch.where(errors.isnan(), torch.inf, errors)
    if a.real is not None:
        errors = torch.where(a.real[:, -errors.shape[1] :], errors, 0.0)
    return errors
