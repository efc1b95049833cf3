"""MagicPIG: keys sampled by locality-sensitive hashing, weighted by how likely they were drawn (Chen et al. 2024,
arXiv 2410.16179), here for every token of a text as if it were being decoded.

SimHash: K random hyperplanes give a code of K bits; L such tables. Two vectors at angle a agree in one bit with
probability p = 1 - a/pi and in a table with p^K. A key is drawn when its code agrees with the query's in at least two
tables (or one), which has a known probability u; subtracting log u from its score makes numerator and denominator of
the softmax unbiased. Sinks and the latest tokens are always read, at weight 1. The paper subtracts the mean key of the
prompt before hashing; a text scored token by token has no prompt, so the mean of the text given at `attach` stands in
for it, none without one. The paper leaves layers 0, 16, 32, ... dense; that is `full_layers`, empty here by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from focus_runtime.errors import ConfigError
from paper.methods.checks import check_heads, check_positions, check_whole
from paper.methods.pairs import Reading, attend_pairs, distances, grouped, query_blocks
from paper.methods.replace import AttentionBaseline

MAX_BITS = 15  # a code is a 16-bit integer
SMALL = 1e-2  # expected tables in agreement below which a series replaces the difference of nearly equal numbers


@dataclass(slots=True, eq=False)
class Hashes:
    """What one layer keeps.

    Attributes:
        planes: (L, K, D) normals of the hyperplanes.
        centre: (Hkv, 1, D) mean key, zero before any was observed.
        seen: tokens behind it.
    """

    planes: Tensor
    centre: Tensor
    seen: int = 0


def random_planes(tables: int, bits: int, size: int, generator: torch.Generator) -> Tensor:
    """Standard normal hyperplanes.

    Args:
        tables: L.
        bits: K, hyperplanes of a table.
        size: D, of the vectors.
        generator: on the CPU.

    Returns:
        (L, K, D) fp32.
    """
    return torch.randn(tables, bits, size, generator=generator)


def hash_codes(vectors: Tensor, planes: Tensor) -> Tensor:
    """SimHash codes: (..., D), (L, K, D) -> (..., L) integers of K bits."""
    tables, bits, size = planes.shape
    signs = (vectors @ planes.reshape(tables * bits, size).T > 0).unflatten(-1, (tables, bits))
    dtype = torch.uint8 if bits <= 8 else torch.int16
    return (signs.to(dtype) << torch.arange(bits, dtype=dtype, device=vectors.device)).sum(dim=-1, dtype=dtype)


def draw_probability(cosine: Tensor, tables: int, bits: int, min_tables: int) -> Tensor:
    """u, the probability that at least `min_tables` of the tables agree.

    Args:
        cosine: of query and key, any shape.
        tables: L.
        bits: K, of a code.
        min_tables: 1 or 2.

    Returns:
        The shape of `cosine`, fp64.
    """
    agree = 1 - torch.arccos(cosine.double().clamp(-1, 1)) / torch.pi
    once = agree**bits
    none = torch.pow(1 - once, tables)
    if min_tables == 1:
        return -torch.expm1(tables * torch.log1p(-once))
    exact = 1 - none - tables * once * torch.pow(1 - once, tables - 1)
    pairs = tables * (tables - 1) / 2 * once.square() * torch.pow(1 - once, tables - 2)
    series = pairs * (1 + (tables - 2) / 3 * once / (1 - once).clamp_min(0.5))
    return torch.where(tables * once < SMALL, series, exact)


def sample_weights(
    query: Tensor,
    key: Tensor,
    codes: tuple[Tensor, Tensor],
    always: Tensor,
    causal: Tensor,
    shape: tuple[int, int, int],
) -> Tensor:
    """log weight of every pair: 0 where always read, -log u where drawn, -inf elsewhere.

    Args:
        query: (B, Hkv, G, rows, D) and key: (B, Hkv, 1, keys, D), of length 1, the key centred before.
        codes: of both, (..., L). always, causal: (rows, keys) bool.
        shape: tables, bits, min_tables.

    Returns:
        (B, Hkv, G, rows, keys) fp32.
    """
    tables, bits, min_tables = shape
    of_query, of_key = codes
    agreeing = torch.zeros(
        (*query.shape[:-1], key.shape[-2]), dtype=torch.uint8 if tables < 256 else torch.int16, device=query.device
    )
    for table in range(tables):
        agreeing += of_query[..., table, None] == of_key[..., None, :, table]
    drawn = (agreeing >= min_tables) & causal & ~always
    where = drawn.nonzero(as_tuple=True)
    batch, head, group, row, column = where
    cosine = (query[batch, head, group, row] * key[batch, head, 0, column]).sum(dim=-1)
    weights = torch.full(drawn.shape, float("-inf"), device=query.device).masked_fill_(always & causal, 0.0)
    unlikely = torch.finfo(torch.float64).tiny
    weights[where] = -draw_probability(cosine, tables, bits, min_tables).clamp_min(unlikely).log().float()
    return weights


def magicpig_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    planes: Tensor,
    *,
    window: int,
    num_sinks: int,
    min_tables: int = 2,
    centre: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    reading: Reading | None = None,
) -> Tensor:
    """Causal attention estimated from sampled keys. Which keys and their probabilities get no gradient.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        planes: (L, K, D) from `random_planes`; every head draws keys of its own through them.
        window: pairs with i - j <= window are always read.
        num_sinks: keys j < num_sinks are always read.
        min_tables: tables that must agree, 1 or 2.
        centre: (Hkv, 1, D), subtracted from keys before hashing; zero when None.
        scale: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap) before they are weighted.
        reading: counts the pairs read.

    Returns:
        (B, Hq, T, D).
    """
    check_heads(query, key, value)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    shape = (planes.shape[0], planes.shape[1], min_tables)
    with torch.no_grad():
        planes = planes.to(query.device)
        shifted = key.float() if centre is None else key.float() - centre
        of_query, of_key = normalize(grouped(query, key).float(), dim=-1), normalize(shifted, dim=-1)[:, :, None]
        query_codes, key_codes = hash_codes(of_query, planes), hash_codes(of_key, planes)
    outs = []
    for start, stop in query_blocks(query.shape[2]):
        rows = slice(start, stop)
        distance = distances(start, stop, stop, query.device)
        always = (distance <= window) | (torch.arange(stop, device=query.device) < num_sinks)
        with torch.no_grad():
            codes = (query_codes[..., rows, :], key_codes[..., :stop, :])
            both = (of_query[..., rows, :], of_key[..., :stop, :])
            weights = sample_weights(*both, codes, always, distance >= 0, shape).flatten(1, 2)
        block = (query[:, :, rows], key[:, :, :stop], value[:, :, :stop])
        outs.append(attend_pairs(*block, weights, scale=scale, softcap=softcap))
        if reading is not None:
            reading.add(weights > float("-inf"), query[:, :, rows], start)
    return torch.cat(outs, dim=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class MagicPIG(AttentionBaseline):
    """Settings. How many keys are drawn follows from the data; see `AttentionHandle.keys_per_query`.

    Attributes:
        bits: K, at most 15.
        tables: L.
        min_tables: tables that must agree, 1 or 2.
        window: pairs with i - j <= window are always read.
        num_sinks: first tokens that are always read.
        full_layers: layers that keep their own attention.
        seed: of the hyperplanes.
    """

    name: ClassVar[str] = "magicpig"
    bits: int = 10
    tables: int = 150
    min_tables: int = 2
    window: int = 63
    num_sinks: int = 4
    full_layers: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, bits=1, tables=1, min_tables=1, window=0, num_sinks=0, seed=0)
        check_positions(self, "full_layers")
        if self.bits > MAX_BITS:
            raise ConfigError(f"bits is {self.bits}", expected=f"at most {MAX_BITS}")
        if self.min_tables > min(2, self.tables):
            raise ConfigError(f"min_tables is {self.min_tables}", expected="1 or 2, and no more than tables")
        if self.tables >= 2**15:
            raise ConfigError(f"tables is {self.tables}", expected=f"fewer than {2**15}")

    def start(self, index: int, query: Tensor, key: Tensor) -> Hashes:
        """See `AttentionBaseline.start`."""
        generator = torch.Generator().manual_seed(self.seed * 1000 + index)
        planes = random_planes(self.tables, self.bits, key.shape[3], generator)
        return Hashes(planes.to(key.device), torch.zeros(key.shape[1], 1, key.shape[3], device=key.device))

    def observe(self, state: Hashes, query: Tensor, key: Tensor) -> None:
        """Keep the running mean of all keys; see `AttentionBaseline.observe`."""
        tokens = key.shape[0] * key.shape[2]
        mean = key.float().mean(dim=(0, 2))[:, None]
        state.seen += tokens
        state.centre = state.centre + (mean - state.centre) * (tokens / state.seen)

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
        return magicpig_attention(
            query,
            key,
            value,
            state.planes,
            window=self.window,
            num_sinks=self.num_sinks,
            min_tables=self.min_tables,
            centre=state.centre.to(key.device),
            scale=scale,
            softcap=softcap,
            reading=reading,
        )
