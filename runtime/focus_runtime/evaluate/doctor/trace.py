"""What a model computes layer by layer while a scenario runs, and where two such records differ first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

EXACT = 2e-4  # of the largest value: rounding of peaked attention in float32, where one wrong pair moves percents


@dataclass(frozen=True, slots=True)
class Entry:
    """The output of one call of a layer, or of the model.

    Attributes:
        layer: number of the layer; None for the logits.
        start: position of the first of its tokens in their row.
        real: (B, T) bool, False for padding; None when all tokens are real.
        value: (B, T, E) or (B, T, V).
    """

    layer: int | None
    start: int
    real: Tensor | None
    value: Tensor


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two records differ.

    Attributes:
        layer: number of the layer; None for the logits, or what was made of them.
        token: position in its row, padding included; None where that has no meaning.
        size: of the largest difference there.
        logits: the largest difference between logits of the whole scenario.
    """

    layer: int | None
    token: int | None
    size: float
    logits: float


@dataclass
class Trace:
    """All entries of a scenario in the order of the calls, and what it returned."""

    entries: list[Entry] = field(default_factory=list)
    returned: list[Tensor] = field(default_factory=list)

    def of_row(self, row: int, start: int) -> Trace:
        """The entries of one row from one token on, as if they were a separate text.

        Args:
            row: of the batch.
            start: its first token.
        """
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
    """Record every forward pass of a model.

    Args:
        model: any causal language model of transformers.
        layers: False records logits alone.
    """
    trace = Trace()
    start, width, real = 0, 0, None

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal start, width, real
        ids = args[0] if args else kwargs.get("input_ids")
        mask, width = kwargs.get("attention_mask"), 0 if ids is None else ids.shape[1]
        start = _seen(kwargs)
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
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def _seen(kwargs: Mapping[str, Any]) -> int:
    """Tokens that the cache of a call holds already."""
    cache = next((kwargs[name] for name in ("cache", "past_key_values") if kwargs.get(name) is not None), None)
    try:
        return int(cache.get_seq_length())  # type: ignore[union-attr]
    except (AttributeError, TypeError, ValueError):  # none, or one of linear layers alone
        return 0


def first_difference(expected: Trace, found: Trace, tolerance: float = EXACT) -> Difference | None:
    """Where two records of one scenario differ first; None where they agree.

    Args:
        expected, found: of the same calls.
        tolerance: share of the largest value of an entry that rounding may change.
    """
    pairs = list(zip(expected.entries, found.entries, strict=False))
    logits = max((_errors(a, b).max().item() for a, b in pairs if a.layer is None and _alike(a, b)), default=0.0)
    for a, b in pairs:
        if not _alike(a, b):
            return Difference(a.layer, a.start, float("inf"), logits)
        errors = _errors(a, b)
        wrong = errors > tolerance * _scale(a)
        if wrong.any():
            token = int(wrong.any(0).nonzero()[0])
            return Difference(a.layer, a.start + token, float(errors[:, token].max()), logits)
    for x, y in zip(expected.returned, found.returned, strict=True):
        size = _returned_error(x, y, tolerance)
        if size:
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


def _scale(a: Entry) -> float:
    real = a.value if a.real is None else a.value[a.real[:, -a.value.shape[1] :]]
    return float(real.abs().max()) if real.numel() else 1.0


def _returned_error(x: Tensor, y: Tensor, tolerance: float) -> float:
    """How far apart two results are; 0 where they agree."""
    if x.shape != y.shape:
        return float("inf")
    size = float((x.double() - y.double()).abs().max())
    return size if size > (tolerance * float(x.abs().max()) if x.is_floating_point() else 0) else 0.0
