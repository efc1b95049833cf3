"""What the baselines ask of their settings and tensors: one message naming the value and what was expected."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from focus_runtime.config import MAX_WHOLE
from focus_runtime.errors import ConfigError, InputError
from focus_runtime.models.devices import input_device


def check_whole(settings: Any, **minima: int) -> None:
    """Refuse settings that are no whole numbers of at least their minimum.

    Raises:
        ConfigError: naming the setting.
    """
    for name, minimum in minima.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_WHOLE:
            raise ConfigError(f"{name} is {value!r}", expected=f"a whole number from {minimum} to {MAX_WHOLE}")


def check_between(settings: Any, name: str, low: float, high: float) -> None:
    """Refuse a setting that is no number from `low` to `high`, both excluded.

    Args:
        settings: a baseline's.
        name: of the setting.
        low: every allowed value is above it.
        high: every allowed value is below it; may be infinite.

    Raises:
        ConfigError: naming the setting.
    """
    value = getattr(settings, name)
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not low < value < high:
        limit = f"a number above {low:g}" if math.isinf(high) else f"a number between {low:g} and {high:g}"
        raise ConfigError(f"{name} is {value!r}", expected=limit)


def check_flag(settings: Any, *names: str) -> None:
    """Refuse a setting that is neither true nor false.

    Raises:
        ConfigError: naming the setting.
    """
    for name in names:
        if not isinstance(getattr(settings, name), bool):
            raise ConfigError(f"{name} is {getattr(settings, name)!r}", expected="True or False")


def check_choice(settings: Any, name: str, allowed: tuple[str, ...]) -> None:
    """Refuse a setting that is none of a few words.

    Args:
        settings: a baseline's.
        name: of the setting.
        allowed: the words.

    Raises:
        ConfigError: naming the setting.
    """
    if getattr(settings, name) not in allowed:
        raise ConfigError(f"{name} is {getattr(settings, name)!r}", expected=" or ".join(allowed))


def check_positions(settings: Any, name: str) -> None:
    """Refuse a setting that is no tuple of different whole numbers from 0 up.

    Raises:
        ConfigError: naming the setting.
    """
    value = getattr(settings, name)
    valid = isinstance(value, tuple) and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in value)
    if not valid or len(set(value)) != len(value):
        raise ConfigError(f"{name} is {value!r}", expected="a tuple of different whole numbers from 0 up")


def check_heads(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse tensors that are not one text's queries, keys and values.

    Args:
        query: should be (B, Hq, T, D), floating point.
        key: should be (B, Hkv, T, D) of query's type, Hq a multiple of Hkv.
        value: should have key's shape and type.

    Raises:
        InputError: naming the argument.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or tensor.dim() != 4:
            received = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InputError(f"{name} is {received}", expected="a tensor of shape (batch, heads, tokens, head size)")
        if not tensor.is_floating_point() or tensor.dtype != query.dtype:
            raise InputError(f"{name} is {tensor.dtype}", expected=f"floating point, {query.dtype} like query")
    if key.shape != value.shape:
        raise InputError(f"value has shape {tuple(value.shape)}", expected=f"{tuple(key.shape)} like key")
    same = query.shape[0] == key.shape[0] and query.shape[2:] == key.shape[2:]
    if not same or key.shape[1] == 0 or query.shape[1] % key.shape[1] or query.shape[2] == 0:
        raise InputError(
            f"query has shape {tuple(query.shape)} and key {tuple(key.shape)}",
            expected="equal batch, at least one token, as many in both, one head size, and a multiple of key's heads",
        )


def check_text(model: Any, text: Any) -> Tensor:
    """(N, T) token ids on the model's device.

    Raises:
        InputError: it is something else.
    """
    valid = isinstance(text, Tensor) and text.dtype in (torch.int64, torch.int32)
    if not valid or text.dim() != 2 or text.numel() == 0:
        received = f"{text.dtype} of shape {tuple(text.shape)}" if isinstance(text, Tensor) else type(text).__name__
        raise InputError(f"text is {received}", expected="an (N, T) tensor of token ids: N sequences of T tokens")
    return text.to(input_device(model))
