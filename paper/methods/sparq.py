"""SparQ: approximate scores from a query's largest components choose the keys that are read (Ribar et al. 2023,
arXiv 2312.04985, algorithm 1), here for every token of a text as if it were being decoded.

Heads that share a key-value head share their components and keys: magnitudes and approximate weights are summed over
them, as in the paper's listing for grouped queries. The paper saves reads of memory; the approximate scores still read
r of D components of every key, which `retained_pairs` does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from focus_runtime.errors import ConfigError
from paper.methods.checks import check_flag, check_heads, check_whole
from paper.methods.pairs import Reading, attend_pairs, capped, distances, grouped, query_blocks
from paper.methods.replace import AttentionBaseline


def sparq_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    components: int,
    num_keys: int,
    num_local: int = 0,
    reallocate: bool = True,
    scale: float | None = None,
    softcap: float | None = None,
    reading: Reading | None = None,
) -> Tensor:
    """Exact attention to the keys with the largest approximate weights.

    Approximate scores q'.k keep the query's `components` largest components q'; their temperature is
    sqrt(D |q'|_1 / |q|_1). With reallocation the output is a y + (1 - a) v, where a is the approximate weight of the
    chosen keys and v the mean of all values so far.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        components: r, at most D counts.
        num_keys: k, keys read by a query.
        num_local: how many of them are the latest ones in any case, the query's own among them.
        reallocate: give the weight of unread keys to the mean value.
        scale: factor on the scores; D^-0.5 when None.
        softcap: scores, approximate ones too, become softcap * tanh(scores / softcap).
        reading: counts the pairs read.

    Returns:
        (B, Hq, T, D).
    """
    check_heads(query, key, value)
    length, size = query.shape[2:]
    scale = size**-0.5 if scale is None else scale
    inner = torch.promote_types(query.dtype, torch.float32)
    reduced, temperature = _largest_components(grouped(query, key).to(inner), min(components, size))
    mean = value.to(inner).cumsum(dim=2) / torch.arange(1, length + 1, device=value.device)[:, None]
    outs = []
    for start, stop in query_blocks(length):
        keys, rows = key[:, :, :stop], slice(start, stop)
        distance = distances(start, stop, stop, query.device)
        scores = (
            reduced[..., rows, :] @ keys.to(inner)[:, :, None].transpose(-1, -2) * scale / temperature[..., rows, :]
        )
        weights = torch.softmax(capped(scores, softcap).masked_fill(distance < 0, float("-inf")), dim=-1)
        allowed = _choose(weights.detach().sum(dim=2), distance, num_keys, num_local)
        repeats = query.shape[1] // key.shape[1]
        pairs = allowed.repeat_interleave(repeats, dim=1)
        out = attend_pairs(query[:, :, rows], keys, value[:, :, :stop], pairs, scale=scale, softcap=softcap)
        if reallocate:
            share = (weights * allowed[:, :, None]).sum(dim=-1, keepdim=True).flatten(1, 2)
            rest = mean[:, :, rows].repeat_interleave(repeats, dim=1)
            out = (share * out.to(inner) + (1 - share) * rest).to(query.dtype)
        outs.append(out)
        if reading is not None:
            reading.add(pairs, query[:, :, rows], start)
    return torch.cat(outs, dim=2)


def _largest_components(query: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Queries with all but the chosen components at 0, and sqrt(|q'|_1 / |q|_1): (B, Hkv, G, T, D) and (..., T, 1)."""
    size = query.abs()
    chosen = size.detach().sum(dim=2, keepdim=True).topk(components, dim=-1).indices
    mask = torch.zeros_like(size[:, :, :1]).scatter(-1, chosen, 1.0)
    tiny = torch.finfo(query.dtype).tiny  # a query of zeros has scores of 0 at any temperature
    share = (size * mask).sum(dim=-1, keepdim=True) / size.sum(dim=-1, keepdim=True).clamp_min(tiny)
    return query * mask, share.clamp_min(torch.finfo(query.dtype).eps).sqrt()


def _choose(weights: Tensor, distance: Tensor, num_keys: int, num_local: int) -> Tensor:
    """The local keys, then those of the largest weights: (B, Hkv, rows, keys) -> the same, bool."""
    causal = distance >= 0
    local = causal & (distance < num_local)
    priority = weights.masked_fill(local, float("inf")).masked_fill(~causal, float("-inf"))
    top = priority.topk(min(num_keys, priority.shape[-1]), dim=-1).indices
    return torch.zeros_like(priority, dtype=torch.bool).scatter(-1, top, True) & causal


@dataclass(frozen=True, kw_only=True, slots=True)
class SparQ(AttentionBaseline):
    """Settings.

    Attributes:
        components: r, query components that the approximate scores use.
        num_keys: k, keys read by a query.
        num_local: how many of them are the latest ones; the paper's default, too, is half of k.
        reallocate: give the weight of unread keys to the mean value.
    """

    name: ClassVar[str] = "sparq"
    components: int = 16
    num_keys: int = 32
    num_local: int = 16
    reallocate: bool = True

    def __post_init__(self) -> None:
        check_whole(self, components=1, num_keys=1, num_local=0)
        check_flag(self, "reallocate")
        if self.num_local > self.num_keys:
            raise ConfigError(f"num_local is {self.num_local}", expected=f"at most num_keys, which is {self.num_keys}")

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
        return sparq_attention(
            query,
            key,
            value,
            components=self.components,
            num_keys=self.num_keys,
            num_local=self.num_local,
            reallocate=self.reallocate,
            scale=scale,
            softcap=softcap,
            reading=reading,
        )
