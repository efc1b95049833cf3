"""Token streams and the sequences cut from them."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from focus_runtime.errors import TextError

_GOLDEN, _CIRCLE = 0x9E3779B97F4A7C15, 1 << 64  # multiples of the golden ratio are spread evenly over a circle


@dataclass(frozen=True, eq=False, slots=True)
class Mixture:
    """Token streams of several domains, and how often a sequence is taken from each.

    Attributes:
        names: of the domains, each once.
        streams: (N,) token ids of each domain.
        weights: above 0; only their ratios matter.
    """

    names: tuple[str, ...]
    streams: tuple[Tensor, ...]
    weights: tuple[float, ...]

    def numel(self) -> int:
        """Tokens of all domains."""
        return sum(stream.numel() for stream in self.streams)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the sequences that each domain gives."""
        return tuple(weight / sum(self.weights) for weight in self.weights)

    def chosen(self, first: int, count: int, seed: int) -> list[int]:
        """Numbers of the domains that the sequences from `first` on are taken from.

        The shares are met as evenly as they can be: after any number of sequences a domain has had its share of them
        to within a few, where independent draws would be off by the square root.

        Args:
            first: number of sequences before.
            count: how many.
            seed: another seed, another order.
        """
        start = int(torch.randint(0, 1 << 62, (1,), generator=torch.Generator().manual_seed(seed)).item()) << 2
        edges = list(accumulate(self.shares))[:-1]
        return [bisect(edges, (start + n * _GOLDEN) % _CIRCLE / _CIRCLE) for n in range(first, first + count)]


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


def step_sequences(ids: Tensor | Mixture, step: int, count: int, length: int, seed: int) -> Tensor:
    """(count, length) random windows of one training step, the same for the same seed and step.

    They depend on nothing else, so a resumed training, and a twin with another kind of attention, see the same data
    in the same order.

    Args:
        ids: (N,) token stream, or those of several domains.
        step: counted from 0.
        count: windows.
        length: tokens of a window.
        seed: of the training.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) % (1 << 63))
    if isinstance(ids, Mixture):
        domains = ids.chosen(step * count, count, seed)
        return torch.cat([random_sequences(ids.streams[domain], 1, length, generator) for domain in domains])
    return random_sequences(ids, count, length, generator)


def even_sequences(ids: Tensor | Mixture, count: int, length: int) -> Tensor:
    """(count, length) windows spread evenly over a token stream; fewer when it is short, never overlapping.

    Args:
        ids: (N,) token stream, or those of several domains, each with its share of the windows but at least one.
        count: windows at most, or one for each domain where that is more.
        length: tokens of a window.
    """
    if isinstance(ids, Mixture):
        domains = zip(ids.streams, ids.shares, strict=True)
        return torch.cat([even_sequences(stream, max(1, round(share * count)), length) for stream, share in domains])
    count = max(1, min(count, ids.numel() // length))
    starts = [round(i * (ids.numel() - length) / max(1, count - 1)) for i in range(count)]
    return torch.stack([ids[s : s + length] for s in starts])
