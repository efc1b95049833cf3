"""Longformer: a sliding window and a few global tokens (Beltagy et al. 2020, arXiv 2004.05150), causal.

Global tokens read everything before them and are read by everything after them. The original gives them projections of
their own; a frozen model has none, so they use the model's. With the first tokens global this is window plus sinks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from paper.methods.checks import check_heads, check_positions, check_whole
from paper.methods.pairs import Reading, attend_pairs, distances, query_blocks
from paper.methods.replace import AttentionBaseline


def longformer_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    window: int,
    positions: tuple[int, ...] = (),
    scale: float | None = None,
    softcap: float | None = None,
    reading: Reading | None = None,
) -> Tensor:
    """Causal attention over pairs that are near or of which one token is global.

    Time and memory grow with T times the window, but for blocks that hold a global token.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        window: pairs with i - j <= window are allowed.
        positions: global tokens; those beyond the text are ignored.
        scale: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap).
        reading: counts the pairs read.

    Returns:
        (B, Hq, T, D).
    """
    check_heads(query, key, value)
    length, device = query.shape[2], query.device
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    known = sorted(position for position in positions if position < length)
    everywhere = torch.zeros(length, dtype=torch.bool, device=device)
    everywhere[known] = True
    outs = []
    for start, stop in query_blocks(length):
        reads_all = any(start <= position < stop for position in known)
        first = 0 if reads_all else max(0, start - window)
        far = [position for position in known if position < first]
        keys = torch.cat(
            [torch.tensor(far, dtype=torch.int64, device=device), torch.arange(first, stop, device=device)]
        )
        distance = distances(start, stop, keys, device)
        allowed = (distance >= 0) & ((distance <= window) | everywhere[keys] | everywhere[start:stop, None])
        block = (
            (key.index_select(2, keys), value.index_select(2, keys))
            if far
            else (key[:, :, first:stop], value[:, :, first:stop])
        )
        rows = query[:, :, start:stop]
        outs.append(attend_pairs(rows, *block, allowed[None, None], scale=scale, softcap=softcap))
        if reading is not None:
            reading.add(allowed[None, None], rows, start)
    return torch.cat(outs, dim=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Longformer(AttentionBaseline):
    """Settings.

    Attributes:
        window: pairs with i - j <= window are allowed.
        num_globals: the first so many tokens are global.
        positions: further global tokens.
    """

    name: ClassVar[str] = "longformer"
    window: int = 128
    num_globals: int = 4
    positions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_whole(self, window=0, num_globals=0)
        check_positions(self, "positions")

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        state: Any,
        scale: float,
        softcap: float | None,
        reading: Reading,
    ) -> Tensor:
        """See `AttentionBaseline.attend`."""
        first = tuple(range(min(self.num_globals, query.shape[2])))
        return longformer_attention(
            query,
            key,
            value,
            window=self.window,
            positions=(*first, *(p for p in self.positions if p not in first)),
            scale=scale,
            softcap=softcap,
            reading=reading,
        )
