"""Token streams and the sequences cut from them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from focus_runtime.errors import TextError


def encode_texts(tokenizer: Any, texts: list[str], minimum: int) -> Tensor:
    """Concatenate texts into one (N,) stream of token ids.

    Args:
        tokenizer: of the model.
        texts: joined in order.
        minimum: fewest tokens that are enough.

    Raises:
        TextError: fewer than `minimum` tokens.
    """
    parts = [torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False).input_ids) for text in texts]
    ids = torch.cat(parts) if parts else torch.empty(0)
    if ids.numel() < minimum:
        raise TextError(
            f"the text has {ids.numel()} tokens",
            expected=f"at least {minimum}",
            fix="give more text or a shorter --seq-len",
        )
    return ids.long()


def random_sequences(ids: Tensor, count: int, length: int, generator: torch.Generator) -> Tensor:
    """(count, length) windows at random places of a token stream.

    Args:
        ids: (N,) token stream.
        count: windows.
        length: tokens of a window.
        generator: decides the places.
    """
    starts = torch.randint(0, ids.numel() - length + 1, (count,), generator=generator)
    return torch.stack([ids[s : s + length] for s in starts.tolist()])


def step_sequences(ids: Tensor, step: int, count: int, length: int, seed: int) -> Tensor:
    """(count, length) random windows of one training step, the same for the same seed and step.

    They depend on nothing else, so a resumed training, and a twin with another kind of attention, see the same data
    in the same order.

    Args:
        ids: (N,) token stream.
        step: counted from 0.
        count: windows.
        length: tokens of a window.
        seed: of the training.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) % (1 << 63))
    return random_sequences(ids, count, length, generator)


def even_sequences(ids: Tensor, count: int, length: int) -> Tensor:
    """(count, length) windows spread evenly over a token stream; fewer when it is short, never overlapping.

    Args:
        ids: (N,) token stream.
        count: windows at most.
        length: tokens of a window.
    """
    count = max(1, min(count, ids.numel() // length))
    starts = [round(i * (ids.numel() - length) / max(1, count - 1)) for i in range(count)]
    return torch.stack([ids[s : s + length] for s in starts])
