"""SparQ: approximate scores from a query's largest components choose the keys that are read (Ribar et al. 2023,
arXiv 2312.04985, algorithm 1), here for every token of a text as if it were being decoded.

Heads that share a key-value head share their components and keys: magnitudes and approximate weights are summed over
them, as in the paper's listing for grouped queries. The paper saves reads of memory; the approximate scores still read
r of D components of every key, which the pairs read do not count.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paper.methods.base import Call, Method


@dataclass(frozen=True, kw_only=True, slots=True)
class SparQ(Method):
    """Exact attention to the keys with the largest approximate weights.

    Approximate scores q'.k keep the query's `components` largest components q'; their temperature is
    sqrt(D |q'|_1 / |q|_1). With reallocation the output is a y + (1 - a) v, where a is the approximate weight of the
    chosen keys and v the mean of all values so far.

    Attributes:
        components: r, at most D count.
        num_local: how many of them are the latest ones, the query's own among them; half of k by default in the paper.
        reallocate: give the weight of unread keys to the mean value.
    """

    components: int = 16
    num_keys: int = 32
    num_local: int = 16
    reallocate: bool = True

    def attend(self, call: Call) -> Tensor:
        length, repeats = call.query.shape[2], call.query.shape[1] // call.key.shape[1]
        inner = torch.promote_types(call.query.dtype, torch.float32)
        reduced, temperature = self._largest_components(call.grouped_query().to(inner))
        mean = call.value.to(inner).cumsum(dim=2) / torch.arange(1, length + 1, device=call.value.device)[:, None]
        outs = []
        for rows in call.blocks():
            distance = call.distance(rows)
            keys = call.key[:, :, None, : rows.stop].to(inner)
            scores = reduced[..., rows, :] @ keys.transpose(-1, -2) * call.scale / temperature[..., rows, :]
            weights = torch.softmax(call.capped(scores).masked_fill(distance < 0, float("-inf")), dim=-1)
            allowed = self._choose(weights.detach().sum(dim=2), distance)
            out = call.over_pairs(rows, allowed.repeat_interleave(repeats, dim=1))
            if self.reallocate:
                share = (weights * allowed[:, :, None]).sum(dim=-1, keepdim=True).flatten(1, 2)
                rest = mean[:, :, rows].repeat_interleave(repeats, dim=1)
                out = (share * out.to(inner) + (1 - share) * rest).to(call.query.dtype)
            outs.append(out)
        return torch.cat(outs, dim=2)

    def _largest_components(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Queries with all but the chosen components at 0, and sqrt(|q'|_1 / |q|_1)."""
        size = query.abs()
        count = min(self.components, query.shape[-1])
        chosen = size.detach().sum(dim=2, keepdim=True).topk(count, dim=-1).indices
        mask = torch.zeros_like(size[:, :, :1]).scatter(-1, chosen, 1.0)
        tiny = torch.finfo(query.dtype).tiny  # a query of zeros has scores of 0 at any temperature
        share = (size * mask).sum(dim=-1, keepdim=True) / size.sum(dim=-1, keepdim=True).clamp_min(tiny)
        return query * mask, share.clamp_min(torch.finfo(query.dtype).eps).sqrt()

    def _choose(self, weights: Tensor, distance: Tensor) -> Tensor:
        """The local keys, then those of the largest weights: (B, Hkv, rows, keys) -> the same, bool."""
        causal = distance >= 0
        local = causal & (distance < min(self.num_local, self.num_keys))
        priority = weights.masked_fill(local, float("inf")).masked_fill(~causal, float("-inf"))
        top = priority.topk(min(self.num_keys, priority.shape[-1]), dim=-1).indices
        return torch.zeros_like(priority, dtype=torch.bool).scatter(-1, top, True) & causal
