"""The decomposition on a GPU by the fastest kernels at hand: those in Triton, else flash kernels and a merge."""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor

from focus_runtime.attention.clock import Stage
from focus_runtime.attention.cuda.decomposed import flash_decomposition, head_size_needed
from focus_runtime.attention.cuda.packing import membership_extent
from focus_runtime.attention.kernels.varlen import LARGEST_HEAD, unusable
from focus_runtime.attention.scoring import Scoring
from focus_runtime.errors import InputError
from focus_runtime.gpu.usable import attention_fits, tried
from focus_runtime.mask.extent import Extent
from focus_runtime.mask.rule import PairRule

GROUPED = "grouped attention"  # name of the Triton kernels in warnings
LARGEST_WINDOW = 4096  # tokens: their far keys begin where one window of keys has been looked through


def grouped_fits(query: Tensor, key: Tensor, value: Tensor, window: int, scoring: Scoring) -> bool:
    """Whether the Triton kernels take such a call, of as many queries as keys, without padding and gradients.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        window: the longest of any query.
        scoring: scale and softcap.
    """
    reaches = window <= LARGEST_WINDOW or window >= key.shape[2] - 1
    return reaches and scoring.scale > 0 and attention_fits(GROUPED, query, key, value)


def decomposition_fits(query: Tensor, key: Tensor, extent: Extent, *, window: int, scoring: Scoring) -> bool:
    """True when `gpu_decomposition` can run, for a call without padding and gradients.

    Args:
        query: (B, Hq, Tq, D); key: (B, Hkv, Tk, D).
        extent: K and k; without Triton, groups take head dimensions of their own for k of 3 and more, and no token
            may have more than k.
        window: the longest of any query.
        scoring: scale and softcap; without Triton there is none.
    """
    if query.shape[2] != key.shape[2]:
        return False
    if grouped_fits(query, key, key, window, scoring):
        return True
    size = query.shape[-1]
    room = (not extent.beyond and extent.top_k < 3) or head_size_needed(size, extent.num_groups) <= LARGEST_HEAD
    return scoring.softcap is None and room and unusable(query.device, query.dtype, size) is None


@functools.cache
def triton_kernels() -> tuple[Any, Any]:
    """The modules that need Triton, grouped.py and pairwise.py: an import statement takes a microsecond each time."""
    from focus_runtime.attention.cuda import grouped, pairwise

    return grouped, pairwise


def gpu_decomposition(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    *,
    extent: Extent | None = None,
    stage: Stage | None = None,
) -> tuple[Tensor, Tensor]:
    """Exact Focus attention on a GPU, for as many queries as keys and without padding.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        membership: (B, T) int64 bit sets.
        rule: window and sinks.
        scoring: scale and softcap.
        extent: what is known of the memberships; looked up with one host synchronisation when None.
        stage: times the parts, as a `StageClock` does.

    Returns:
        out (B, Hq, T, D); logsumexp (B, Hq, T) fp32.

    Raises:
        InputError: no kernel here takes such tensors.
    """
    known = membership_extent(membership) if extent is None else extent
    if grouped_fits(query, key, value, rule.near(key.shape[2] - 1), scoring):
        grouped, pairwise = triton_kernels()

        def run() -> tuple[Tensor, Tensor]:
            if pairwise.pairwise_pays(query, known.num_groups, known.top_k):
                sets_SBT, lse, groups = membership.contiguous()[None], grouped.new_lse(query), known.num_groups
                tensors = (query, key, value, sets_SBT)
                out_BTHD = pairwise.pairwise_attention(*tensors, rule, scoring, num_groups=groups, stage=stage, lse=lse)
                return out_BTHD.transpose(1, 2), lse
            return grouped.grouped_attention(query, key, value, membership, rule, scoring, extent=known, stage=stage)

        result = tried(GROUPED, query, run)
        if result is not None:
            return result
    if known.beyond or known.top_k == 0:
        known = membership_extent(membership)
    if scoring.softcap is not None:
        raise InputError(
            "backend 'decomposed' was given a softcap, which the flash kernels here do not have",
            expected="no softcap, or Triton and tensors in half precision",
            fix='use backend="auto"',
        )
    return flash_decomposition(query, key, value, membership, rule, scoring.scale, stage=stage, extent=known)
