"""Token streams and the sequences cut from them."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from focus_runtime.errors import TextError
from focus_runtime.text.special import DEFAULT, added_tokens, bare_ids, begins_with

_GOLDEN, _CIRCLE = 0x9E3779B97F4A7C15, 1 << 64  # multiples of the golden ratio are spread evenly over a circle


@dataclass(frozen=True, eq=False, slots=True)
class TokenStream:
    """The tokens of texts, and the special tokens that every sequence cut from them begins with."""

    ids: Tensor  # (N,), without the special tokens that the tokenizer adds
    prefix: tuple[int, ...] = ()  # token ids that a sequence begins with, such as BOS; they count in its length
    special_tokens: str | None = None  # "auto" or "none"; None for a tokenizer that adds none

    def numel(self) -> int:
        """Tokens of the texts."""
        return self.ids.numel()

    def cut(self, starts: list[int], length: int) -> Tensor:
        """(len(starts), length) sequences that begin at these places of the texts."""
        prefix, own = self.ids.new_tensor(self.prefix), self.own(length)
        return torch.stack([torch.cat([prefix, self.ids[s : s + own]]) for s in starts])

    def own(self, length: int) -> int:
        """Tokens of the texts in a sequence of `length` tokens."""
        return length - len(self.prefix)


@dataclass(frozen=True, eq=False, slots=True)
class Mixture:
    """Token streams of several domains, and the weights, of which only ratios matter, at which sequences are taken."""

    names: tuple[str, ...]
    streams: tuple[TokenStream, ...]
    weights: tuple[float, ...]

    @property
    def special_tokens(self) -> str | None:
        """As for `TokenStream`."""
        return self.streams[0].special_tokens

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
        """
        start = int(torch.randint(0, 1 << 62, (1,), generator=torch.Generator().manual_seed(seed)).item()) << 2
        edges = list(accumulate(self.shares))[:-1]
        return [bisect(edges, (start + n * _GOLDEN) % _CIRCLE / _CIRCLE) for n in range(first, first + count)]


def encode_texts(tokenizer: Any, texts: list[str], minimum: int, special_tokens: str = DEFAULT) -> TokenStream:
    """Concatenate texts into one stream of at least `minimum` tokens, else a TextError.

    `special_tokens`: "auto" or "none", see `encode`; what "auto" adds begins every sequence and stands nowhere else.
    """
    added = added_tokens(tokenizer, special_tokens)
    parts = []
    for text in texts:
        own = bare_ids(tokenizer, text)
        spelled = len(added.ids) if begins_with(own, added.ids) else 0
        parts.append(torch.tensor(own[spelled:], dtype=torch.long))
    ids = torch.cat(parts) if parts else torch.empty(0, dtype=torch.long)
    if ids.numel() < minimum:
        raise TextError(
            f"the text has {ids.numel()} tokens",
            expected=f"at least {minimum}",
            fix="give more text or a shorter --seq-len",
        )
    return TokenStream(ids, added.ids, added.choice)


def recorded_special_tokens(texts: TokenStream | Mixture) -> dict[str, str]:
    """What a file records of the special tokens of its texts; nothing for a tokenizer that adds none."""
    return {} if texts.special_tokens is None else {"special_tokens": texts.special_tokens}


def step_sequences(texts: TokenStream | Mixture, step: int, count: int, length: int, seed: int) -> Tensor:
    """(count, length) random windows of one training step, the same for the same seed and step, counted from 0.

    They depend on nothing else, so a resumed training, and a twin with another kind of attention, see the same data
    in the same order.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) % (1 << 63))

    def windows(stream: TokenStream, number: int) -> Tensor:
        starts = torch.randint(0, stream.numel() - stream.own(length) + 1, (number,), generator=generator)
        return stream.cut(starts.tolist(), length)

    if isinstance(texts, Mixture):
        return torch.cat([windows(texts.streams[one], 1) for one in texts.chosen(step * count, count, seed)])
    return windows(texts, count)


def even_sequences(texts: TokenStream | Mixture, count: int, length: int) -> Tensor:
    """(count, length) windows spread evenly over a token stream; fewer when it is short, never overlapping.

    Of several domains each gives its share of the windows, but at least one.
    """
    if isinstance(texts, Mixture):
        domains = zip(texts.streams, texts.shares, strict=True)
        return torch.cat([even_sequences(stream, max(1, round(share * count)), length) for stream, share in domains])
    own = texts.own(length)
    count = max(1, min(count, texts.numel() // own))
    starts = [round(i * (texts.numel() - own) / max(1, count - 1)) for i in range(count)]
    return texts.cut(starts, length)
