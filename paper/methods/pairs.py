"""What attention over chosen pairs shares: blocks of queries, softmax over the pairs, and a count of those read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.errors import InputError

BLOCK = 256  # queries at a time: memory grows with BLOCK x T, and little of the future is computed


@dataclass(slots=True)
class Reading:
    """How many query-key pairs a method read, over batch, heads and tokens.

    Attributes:
        pairs: pairs whose key and value were read exactly, for the softmax.
        causal: pairs full causal attention reads.
        queries: query vectors.
    """

    pairs: Tensor | float = 0.0
    causal: float = 0.0
    queries: int = 0

    def add(self, allowed: Tensor, query: Tensor, first: int) -> None:
        """Count one block.

        Args:
            allowed: bool, broadcasts to (B, Hq, rows, keys).
            query: (B, Hq, rows, D); first: position of its first row.
        """
        batch, heads, rows, _ = query.shape
        shared = batch * heads // (allowed.shape[:-2].numel())
        self.pairs = self.pairs + allowed.sum() * shared
        self.add_rows(batch * heads, rows, first)

    def add_everything(self, query: Tensor) -> None:
        """Count (B, Hq, T, D) queries that each read all keys before them."""
        batch, heads, rows, _ = query.shape
        self.pairs = self.pairs + batch * heads * rows * (rows + 1) / 2
        self.add_rows(batch * heads, rows, 0)

    def add_rows(self, copies: int, rows: int, first: int) -> None:
        """Count queries, without their pairs.

        Args:
            copies: B Hq, heads of all texts.
            rows: queries of each.
            first: position of the first of them.
        """
        self.causal += copies * (rows * first + rows * (rows + 1) / 2)
        self.queries += copies * rows

    @property
    def retained_pairs(self) -> float:
        """Pairs read over causal pairs."""
        return self._per(self.causal)

    @property
    def keys_per_query(self) -> float:
        """Mean number of keys of a query."""
        return self._per(self.queries)

    def _per(self, count: float) -> float:
        if not count:
            raise InputError("no forward pass has run yet", fix="score or run a text first, then ask what was read")
        return float(self.pairs) / count


def query_blocks(length: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of each block of queries."""
    for start in range(0, length, BLOCK):
        yield start, min(start + BLOCK, length)


def distances(start: int, stop: int, keys: Tensor | int, device: torch.device) -> Tensor:
    """i - j of queries i and keys j.

    Args:
        start, stop: the queries are at positions start to stop - 1.
        keys: (keys,) int64 positions, or the number of keys from position 0 on.
        device: of the result.

    Returns:
        (rows, keys) int64.
    """
    if isinstance(keys, int):
        keys = torch.arange(keys, device=device)
    return torch.arange(start, stop, device=device)[:, None] - keys[None, :]


def capped(scores: Tensor, softcap: float | None) -> Tensor:
    """softcap * tanh(scores / softcap), or the scores as they are."""
    return scores if softcap is None else softcap * torch.tanh(scores / softcap)


def grouped(query: Tensor, key: Tensor) -> Tensor:
    """Queries grouped by the key-value head they share: (B, Hq, T, D) -> (B, Hkv, G, T, D)."""
    return query.unflatten(1, (key.shape[1], query.shape[1] // key.shape[1]))


def attend_pairs(
    query: Tensor, key: Tensor, value: Tensor, pairs: Tensor, *, scale: float, softcap: float | None = None
) -> Tensor:
    """Softmax attention over chosen pairs.

    Args:
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D), Hq a multiple of Hkv.
        pairs: broadcasts to (B, Hq, Tq, Tk); bool, True where allowed, or float, added to the scores and -inf where
            not allowed. Every query needs a key.
        scale: factor on the scores.
        softcap: scores become softcap * tanh(scores / softcap); None for no cap.

    Returns:
        (B, Hq, Tq, D).
    """
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    if softcap is None:
        mask = pairs if pairs.dtype == torch.bool else pairs.to(query.dtype)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    scores = capped(query @ key.transpose(-1, -2) * scale, softcap)
    scores = scores.masked_fill(~pairs, float("-inf")) if pairs.dtype == torch.bool else scores + pairs
    return torch.softmax(scores.float() if scores.dtype.itemsize < 4 else scores, dim=-1).to(value.dtype) @ value
