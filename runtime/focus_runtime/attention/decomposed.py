"""Exact Focus for any k from flash calls alone: causal attention inside groups, cross-group local attention and sinks.

Same-group: the tokens of one group, in text order, are an ordinary causal sequence. With several groups a token, one
call per group counts a pair once for every group it shares, and inclusion-exclusion puts that right: over all sets U
of groups, calls on the tokens that belong to all of U count with sign (-1)^(|U|+1), so that every pair with a common
group counts once. For k = 1 that is one call per group, for k = 2 the calls per group less the calls per signature.
What is taken away was counted before, so the difference is stable: amplification at most 2^(k-1), never full attention
minus a complement (METHOD section 4).

Local: short blocks of queries against the keys in reach, pairs that share a group masked. Sinks: s keys a query.
Everything is merged by logsumexp. Memory is linear in T, and no tensor is laid out anew: rows of all heads are gathered
and scattered together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.attention.flash import causal_flash, masked_flash
from focus_runtime.clock import StageClock
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import narrow

LOCAL_BLOCK = 64  # queries per local block; 32 to 256 were timed at w = 128, see LOG.md
MOST_CALLS = 512  # sets of groups beyond which the calls cost more than dense attention at any length


@dataclass(frozen=True, slots=True)
class CausalSet:
    """Tokens that belong to all of some groups, in text order: groups as a bit set, rows (n,) int64."""

    groups: int
    rows: Tensor

    @property
    def sign(self) -> int:
        """+1 or -1 by inclusion-exclusion."""
        return 1 if self.groups.bit_count() % 2 else -1


def causal_sets(membership: Tensor) -> Iterator[CausalSet]:
    """Every set of groups that some token has in full, for one text: (T,) int64 -> the calls of the decomposition."""
    signatures, code = torch.unique(membership, return_inverse=True)
    for subset in subsets_of(signatures.tolist()):
        holders = (signatures & subset) == subset
        rows = torch.nonzero(holders[code]).flatten()
        yield CausalSet(subset, rows)


def subsets_of(signatures: list[int]) -> list[int]:
    """Non-empty sub-bit-sets of some bit sets, each once, ascending by size."""
    found: set[int] = set()
    for signature in signatures:
        part = signature
        while part > 0:
            found.add(part)
            part = (part - 1) & signature
            if len(found) > MOST_CALLS:
                raise InputError(
                    f"membership makes more than {MOST_CALLS} sets of groups, one call each in backend 'decomposed'",
                    expected="fewer groups a token",
                    fix='use backend="auto" or "masked"',
                )
    return sorted(found, key=lambda part: (part.bit_count(), part))


class Running:
    """Attention of one text as it is merged: out (T, H, D) and logsumexp (T, H), empty until something is added."""

    def __init__(self, length: int, heads: int, dim: int, dtype: torch.dtype) -> None:
        self.out = torch.zeros(length, heads, dim, dtype=dtype)
        self.lse = torch.full((length, heads), float("-inf"), dtype=dtype)

    def add(self, rows: Tensor, out: Tensor, lse: Tensor) -> None:
        """Merge (n, H, D) and (n, H), finite, into some rows."""
        before, old = self.lse.index_select(0, rows), self.out.index_select(0, rows)
        old.lerp_(out.to(old.dtype), torch.sigmoid(lse - before)[..., None])
        self.out.index_copy_(0, rows, old)
        self.lse.index_copy_(0, rows, torch.logaddexp(lse, before))


def _by_token(x: Tensor) -> Tensor:
    return x[0].transpose(0, 1)


def _same_group(
    query: Tensor, key: Tensor, value: Tensor, membership: Tensor, scale: float, total: Running, clock: StageClock
) -> Running | None:
    """Add what inclusion-exclusion adds to `total`; return what it takes away, None for k = 1."""
    removed: Running | None = None
    for part in causal_sets(membership):
        with clock("sort"):
            rows = part.rows
            q, k, v = (_by_token(x).index_select(0, rows).transpose(0, 1)[None] for x in (query, key, value))
        with clock("same_group"):
            out, lse = causal_flash(q, k, v, scale)
        with clock("merge"):
            if part.sign < 0 and removed is None:
                length, heads, dim = total.out.shape
                removed = Running(length, heads, dim, total.out.dtype)
            target = total if part.sign > 0 else removed
            assert target is not None
            target.add(rows, _by_token(out), lse[0].transpose(0, 1))
    return removed


def has_local(membership: Tensor, window: int) -> bool:
    """Whether (T,) tokens have near pairs without a shared group; one without groups shares none even with itself."""
    return window > 0 or not bool(membership.all())


def has_far_sinks(length: int, window: int, num_sinks: int) -> bool:
    """Whether some query has a sink beyond its window."""
    return num_sinks > 0 and window + 1 < length


def local_pieces(length: int, window: int) -> list[tuple[int, int, int]]:
    """(start, stop, blocks) ranges of queries; behind every block lies a whole window, so that blocks are views."""
    head = min(length, -(-window // LOCAL_BLOCK) * LOCAL_BLOCK)
    blocks = (length - head) // LOCAL_BLOCK
    body = head + blocks * LOCAL_BLOCK
    pieces = [(start, min(start + LOCAL_BLOCK, head), 1) for start in range(0, head, LOCAL_BLOCK)]
    if blocks:
        pieces.append((head, body, blocks))
    if body < length:
        pieces.append((body, length, 1))
    return pieces


def overlapping(x: Tensor, start: int, blocks: int, size: int, step: int) -> Tensor:
    """Blocks of rows as a view: (T, ...) -> (blocks, size, ...), block n beginning at start + n * step."""
    strides = (x.stride(0) * step, *x.stride())
    return x.as_strided((blocks, size, *x.shape[1:]), strides, x.storage_offset() + start * x.stride(0))


def local_blocks(
    tensors: tuple[Tensor, Tensor, Tensor], membership: Tensor, window: int, piece: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Query, key and value blocks (N, H, b, D) of one piece; near (1, b, keys) and shared (N, b, keys) pairs, bool."""
    start, stop, blocks = piece
    size = (stop - start) // blocks
    first = max(0, start - window)
    reach = start - first + size
    q, k, v = (
        overlapping(x, at, blocks, rows, size).transpose(1, 2)
        for x, at, rows in zip(tensors, (start, first, first), (size, reach, reach), strict=True)
    )
    group_q = overlapping(membership, start, blocks, size, size)
    group_k = overlapping(membership, first, blocks, reach, size)
    distance = torch.arange(start - first, reach)[:, None] - torch.arange(reach)[None, :]
    near = ((distance >= 0) & (distance <= window))[None]
    return q, k, v, near, (group_q[:, :, None] & group_k[:, None, :]) != 0


def _cross_group_local(
    query: Tensor, key: Tensor, value: Tensor, membership: Tensor, window: int, scale: float, total: Running
) -> None:
    tensors = (_by_token(query), _by_token(key), _by_token(value))
    for piece in local_pieces(query.shape[2], window):
        q, k, v, near, shared = local_blocks(tensors, membership, window, piece)
        out, lse = masked_flash(q, k, v, (near & ~shared)[:, None], scale)
        rows = slice(*piece[:2])
        total.out[rows] = out.transpose(1, 2).flatten(0, 1)
        total.lse[rows] = lse.transpose(1, 2).flatten(0, 1)


def _cross_group_sinks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    window: int,
    num_sinks: int,
    scale: float,
    total: Running,
) -> None:
    repeats = query.shape[1] // key.shape[1]
    first = window + 1  # queries before it have every sink in their window
    key_s, value_s = (x[0, :, :num_sinks].repeat_interleave(repeats, dim=0) for x in (key, value))
    scores = (query[0, :, first:] @ key_s.transpose(-1, -2)).to(total.lse.dtype) * scale
    scores = scores.masked_fill(~sink_pairs(membership, window, key_s.shape[1])[first:], float("-inf"))
    lse = torch.logsumexp(torch.cat([scores, total.lse[first:].t()[..., None]], dim=-1), dim=-1)
    safe = lse.masked_fill(lse == float("-inf"), 0.0)
    weights = torch.exp(scores - safe[..., None]).to(value_s.dtype)
    rest = torch.exp(total.lse[first:] - safe.t())[..., None]
    total.out[first:].mul_(rest).add_((weights @ value_s).transpose(0, 1))
    total.lse[first:] = lse.t()


def sink_pairs(membership: Tensor, window: int, num_sinks: int) -> Tensor:
    """Pairs that only the sinks keep: (T,) -> (T, s) bool, beyond the window and without a shared group."""
    position = torch.arange(membership.shape[0])
    far = position[:, None] - position[None, :num_sinks] > window
    return far & ((membership[:, None] & membership[None, :num_sinks]) == 0)


def _subtract(total: Running, removed: Running) -> None:
    """Take away what was counted too often; all of `removed` is contained in `total`, so the rest stays positive."""
    share = torch.exp(removed.lse - total.lse.masked_fill(total.lse == float("-inf"), 0.0))
    rest = torch.log1p(-share)
    weight = torch.exp(-rest)[..., None]
    total.out = total.out * weight - removed.out * (share[..., None] * weight)
    total.lse = total.lse + rest


def decomposed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    *,
    window: int,
    num_sinks: int = 0,
    scale: float,
    clock: StageClock | None = None,
) -> tuple[Tensor, Tensor]:
    """Exact Focus attention on the CPU, any k. Shapes as in `focus_attention`, with Tq = Tk and no padding.

    Args:
        clock: adds the time of "sort" (and gather), "same_group", "local", "sinks" and "merge".
    """
    clock = clock or StageClock(enabled=False)
    length = query.shape[2]
    window = min(window, length - 1)  # local blocks reach back a whole window: a longer one only costs memory
    dtype = torch.promote_types(query.dtype, torch.float32)
    outs, lses = [], []
    for b in range(query.shape[0]):
        q, k, v, groups = query[b : b + 1], key[b : b + 1], value[b : b + 1], membership[b]
        total = Running(length, query.shape[1], query.shape[3], dtype)
        small = narrow(groups)
        if has_local(groups, window):
            with clock("local"):
                _cross_group_local(q, k, v, small, window, scale, total)
        if has_far_sinks(length, window, num_sinks):
            with clock("sinks"):
                _cross_group_sinks(q, k, v, small, window, num_sinks, scale, total)
        removed = _same_group(q, k, v, groups, scale, total, clock)
        if removed is not None:
            with clock("merge"):
                _subtract(total, removed)
        outs.append(total.out.to(query.dtype))
        lses.append(total.lse)
    return torch.stack(outs).transpose(1, 2), torch.stack(lses).transpose(1, 2)
