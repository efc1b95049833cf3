"""Groups stored with keys and values: what a transformers cache layer must hold for Focus to continue from it.

A cache layer that Focus has used gets a subclass of its own class whose operations also move its groups. The groups
are part of the cache, so every cache has its own, copies of it included. The whole text's groups are kept, 8 bytes a
token, even where a sliding-window layer drops old keys.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from focus_runtime.errors import ModelError

_HISTORY = "focus_groups"
_BASE = "focus_base"
WHOLE = 64  # tokens that room is made for at once: kernels read rows that begin at multiples of 16
START_OVER = "start from an empty cache and fill it with Focus composed"


class GroupHistory:
    """Groups of the tokens one cache layer has seen, for a batch of B texts, by S settings of its heads."""

    def __init__(self, seen: int) -> None:
        self.seen = seen  # tokens the layer has seen, through Focus or not
        self.length = 0  # tokens whose groups are known; equal to `seen` as long as only Focus filled the cache
        self.first_real: Tensor | None = None  # (B,) int64, padding tokens before each text; None without padding
        self.written_by: Hashable = None
        self.first_input: Tensor | None = None  # (B, E) of each text's first real token, to find text sinks
        self._buffer: Tensor | None = None  # (B, S, capacity)

    @property
    def membership(self) -> Tensor:
        """(S, B, length) int64 bit sets, in the order of `LayerHeads.top_ks`."""
        assert self._buffer is not None, "append comes first"
        return self._buffer[..., : self.length].transpose(0, 1)

    def extend(self, new: int) -> Tensor:
        """Count more tokens, whose groups the caller writes: (S, B, capacity), they are last of the first `length`."""
        known = self._buffer
        assert known is not None, "append comes first"
        total, (batch, settings, capacity) = self.length + new, known.shape
        inference = known.is_inference() and not torch.is_inference_mode_enabled()  # cannot be written to
        if inference or total > capacity:
            room = -(-max(total, 2 * capacity) // WHOLE) * WHOLE  # one more token must not copy all others every time
            grown = known.new_zeros(batch, settings, room)
            grown[..., : self.length] = known[..., : self.length]
            self._buffer = known = grown
        self.length = total
        return known.transpose(0, 1)

    def append(self, membership: Tensor, padding: Tensor | None, written_by: Hashable) -> None:
        """Add the groups of the newest tokens, (S, B, T) bit sets; `padding`, (B, T) bool, is True for real ones."""
        place, new = self.length, membership.shape[2]
        if place == 0:
            self._buffer = membership.transpose(0, 1).clone(memory_format=torch.contiguous_format)
            self.first_real, self.length, self.written_by = None, new, written_by
        else:
            self.extend(new)[:, :, place : self.length] = membership
        if padding is not None:
            leading_B = (padding.cumsum(dim=1) == 0).sum(dim=1)
            before_B = torch.zeros_like(leading_B) if self.first_real is None else self.first_real
            self.first_real = before_B + torch.where(before_B == place, leading_B, 0)

    def crop(self, seen: int) -> None:
        """Drop all but the first `seen` tokens."""
        self.seen, self.length = seen, min(self.length, seen)

    def change_batch(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply one operation over the batch dimension."""
        for name in ("_buffer", "first_real", "first_input"):
            if (tensor := getattr(self, name)) is not None:
                setattr(self, name, change(tensor))


def history_of(layer: Any) -> GroupHistory:
    """The groups of a cache layer's keys; from the first call on they follow every operation on the layer."""
    if _HISTORY not in layer.__dict__:
        layer.__dict__[_HISTORY] = GroupHistory(int(layer.get_seq_length()))
        kind: Any = type(layer)
        layer.__class__ = _grouped(kind)
    return layer.__dict__[_HISTORY]


def layer_of(past: Any, index: int) -> Any:
    """One layer of a transformers cache, created if the cache makes its layers when first used."""
    past = getattr(past, "self_attention_cache", past)
    if isinstance(past, Cache):
        if past.layer_class_to_replicate is not None:
            while len(past.layers) <= index:
                past.layers.append(past.layer_class_to_replicate())
        if index < len(past.layers) and isinstance(past.layers[index], CacheLayerMixin):
            return past.layers[index]
    raise ModelError(
        f"Focus cannot keep groups in {type(past).__name__} for layer {index}",
        expected="a transformers cache with keys and values of every attention layer",
        fix="use DynamicCache or StaticCache, or call the model with use_cache=False",
    )


@cache
def _grouped(base: Any) -> Any:
    """Subclass of a cache layer class that moves the groups along."""
    body: dict[str, Any] = {
        _BASE: base,
        "_layer_type": None,  # keeps transformers from registering it
        "is_compileable": False,  # attention reads the groups in plain Python
        "__reduce__": _reduce,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
    } | {name: method for name, method in _FOLLOWERS.items() if hasattr(base, name)}
    return types.new_class(base.__name__, (base,), exec_body=lambda namespace: namespace.update(body))


def _update(self: Any, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    result = getattr(self, _BASE).update(self, key_states, value_states, *args, **kwargs)
    self.focus_groups.seen += key_states.shape[-2]
    return result


def _reset(self: Any) -> None:
    getattr(self, _BASE).reset(self)
    if isinstance(self, DynamicLayer) and self.keys is not None and self.values is not None and self.keys.numel():
        # transformers 5.17 zeroes the keys of such a layer and keeps them, so the next text would attend to zeros
        self.keys, self.values = self.keys[..., :0, :], self.values[..., :0, :]
    self.__dict__[_HISTORY] = GroupHistory(int(self.get_seq_length()))


def _crop(self: Any, *args: Any, **kwargs: Any) -> None:
    getattr(self, _BASE).crop(self, *args, **kwargs)  # what its argument means has changed between versions
    self.focus_groups.crop(int(self.get_seq_length()))


def _reorder_cache(self: Any, beam_idx: Tensor) -> None:
    getattr(self, _BASE).reorder_cache(self, beam_idx)
    self.focus_groups.change_batch(lambda x: x.index_select(0, beam_idx.to(x.device)))


def _batch_repeat_interleave(self: Any, repeats: int) -> None:
    getattr(self, _BASE).batch_repeat_interleave(self, repeats)
    self.focus_groups.change_batch(lambda x: x.repeat_interleave(repeats, dim=0))


def _batch_select_indices(self: Any, indices: Tensor) -> None:
    getattr(self, _BASE).batch_select_indices(self, indices)
    self.focus_groups.change_batch(lambda x: x[indices.to(x.device) if isinstance(indices, Tensor) else indices])


_FOLLOWERS: dict[str, Any] = {
    "update": _update,
    "reset": _reset,
    "crop": _crop,
    "reorder_cache": _reorder_cache,
    "batch_repeat_interleave": _batch_repeat_interleave,
    "batch_select_indices": _batch_select_indices,
}


def _restore(base: type) -> Any:
    grouped = _grouped(base)
    return grouped.__new__(grouped)


def _reduce(self: Any) -> tuple[Any, ...]:
    """For copy and pickle, which could not find the class made here by name."""
    return _restore, (getattr(self, _BASE),), self.__dict__
