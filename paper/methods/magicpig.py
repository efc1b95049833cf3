"""MagicPIG: keys sampled by locality-sensitive hashing, weighted by how likely they were drawn (Chen et al. 2024,
arXiv 2410.16179), here for every token of a text as if it were being decoded.

SimHash: K random hyperplanes give a code of K bits; L such tables. Two vectors at angle a agree in one bit with
probability p = 1 - a/pi and in a table with p^K. A key is drawn when its code agrees with the query's in at least two
tables, which has a known probability u; subtracting log u from its score makes numerator and denominator of the
softmax unbiased. Sinks and the latest tokens are always read, at weight 1. The paper subtracts the mean key of the
prompt before hashing; a text scored token by token has no prompt, so the mean of the text given at `attach` stands in
for it, none without one. The paper leaves layers 0, 16, 32, ... dense; here no layer is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from paper.methods.base import Call, Method

SMALL = 1e-2  # expected tables in agreement below which a series replaces the difference of nearly equal numbers


@dataclass(slots=True, eq=False)
class Hashes:
    """What one layer keeps.

    Attributes:
        planes: (L, K, D) normals of the hyperplanes.
        centre: (Hkv, 1, D) mean key, zero before any was observed.
    """

    planes: Tensor
    centre: Tensor
    seen: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MagicPIG(Method):
    """Causal attention estimated from sampled keys. Which keys are drawn, and how likely, gets no gradient.

    Attributes:
        bits: K, at most 15.
        window: pairs with i - j <= window are always read.
        num_sinks: first tokens that are always read.
    """

    bits: int = 10
    tables: int = 150
    window: int = 63
    num_sinks: int = 4
    seed: int = 0

    def start(self, index: int, query: Tensor, key: Tensor) -> Hashes:
        generator = torch.Generator().manual_seed(self.seed * 1000 + index)
        planes = torch.randn(self.tables, self.bits, key.shape[3], generator=generator)
        return Hashes(planes.to(key.device), torch.zeros(key.shape[1], 1, key.shape[3], device=key.device))

    def observe(self, call: Call) -> None:
        """Keep the running mean of all keys."""
        hashes: Hashes = call.state
        tokens = call.key.shape[0] * call.key.shape[2]
        hashes.seen += tokens
        mean = call.key.float().mean(dim=(0, 2))[:, None]
        hashes.centre = hashes.centre + (mean - hashes.centre) * (tokens / hashes.seen)

    def attend(self, call: Call) -> Tensor:
        hashes: Hashes = call.state
        with torch.no_grad():
            query = normalize(call.grouped_query().float(), dim=-1)
            key = normalize(call.key.float() - hashes.centre, dim=-1)[:, :, None]
            query_codes, key_codes = hash_codes(query, hashes.planes), hash_codes(key, hashes.planes)
        outs = []
        for rows in call.blocks():
            distance = call.distance(rows)
            sinks = torch.arange(rows.stop, device=distance.device) < self.num_sinks
            always = (distance >= 0) & ((distance <= self.window) | sinks)
            with torch.no_grad():
                agreeing = agreeing_tables(query_codes[..., rows, :], key_codes[..., : rows.stop, :])
                drawn = (agreeing >= 2) & (distance >= 0) & ~always
                weights = self._log_weights(query[..., rows, :], key, drawn, always)
            outs.append(call.over_pairs(rows, weights.flatten(1, 2)))
        return torch.cat(outs, dim=2)

    def _log_weights(self, query: Tensor, key: Tensor, drawn: Tensor, always: Tensor) -> Tensor:
        """0 where always read, -log u where drawn, -inf elsewhere: (B, Hkv, G, rows, keys) fp32."""
        where = drawn.nonzero(as_tuple=True)
        batch, head, group, row, column = where
        cosine = (query[batch, head, group, row] * key[batch, head, 0, column]).sum(dim=-1)
        weights = torch.full(drawn.shape, float("-inf"), device=query.device).masked_fill_(always, 0.0)
        unlikely = torch.finfo(torch.float64).tiny
        probability = draw_probability(cosine, self.tables, self.bits)
        weights[where] = -probability.clamp_min(unlikely).log().float()
        return weights


def hash_codes(vectors: Tensor, planes: Tensor) -> Tensor:
    """SimHash codes: (..., D), (L, K, D) -> (..., L) integers of K bits."""
    tables, bits, size = planes.shape
    signs = (vectors @ planes.reshape(tables * bits, size).T > 0).unflatten(-1, (tables, bits))
    dtype = torch.uint8 if bits <= 8 else torch.int16
    return (signs.to(dtype) << torch.arange(bits, dtype=dtype, device=vectors.device)).sum(dim=-1, dtype=dtype)


def agreeing_tables(query: Tensor, key: Tensor) -> Tensor:
    """In how many tables the codes (..., rows, L) and (..., keys, L) agree: (..., rows, keys)."""
    tables = query.shape[-1]
    dtype = torch.uint8 if tables < 256 else torch.int16
    agreeing = torch.zeros((*query.shape[:-1], key.shape[-2]), dtype=dtype, device=query.device)
    for table in range(tables):
        agreeing += query[..., table, None] == key[..., None, :, table]
    return agreeing


def draw_probability(cosine: Tensor, tables: int, bits: int) -> Tensor:
    """u, the probability that at least two of the tables agree for vectors of this cosine, fp64."""
    agree = 1 - torch.arccos(cosine.double().clamp(-1, 1)) / torch.pi
    once = agree**bits
    exact = 1 - torch.pow(1 - once, tables) - tables * once * torch.pow(1 - once, tables - 1)
    pairs = tables * (tables - 1) / 2 * once.square() * torch.pow(1 - once, tables - 2)
    series = pairs * (1 + (tables - 2) / 3 * once / (1 - once).clamp_min(0.5))
    return torch.where(tables * once < SMALL, series, exact)
