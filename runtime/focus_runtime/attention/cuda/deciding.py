"""What a decode step's new token is given before attention on a GPU, in one kernel: groups, and queries' factors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.attention.cuda.factors import HeadFactors
from focus_runtime.attention.cuda.triton_kernels.deciding import decide_kernel
from focus_runtime.config import CONSTANT
from focus_runtime.gpu.launch import aligned, alike, power_of_two
from focus_runtime.routing.on_gpu import in_bytes

CELLS = 4096  # of the router's weights, at once
WARPS, STAGES = 4, 2


@dataclass(frozen=True, slots=True, eq=False)
class Sinks:
    """How text sinks are found, see composition/text_sinks.py.

    Attributes:
        known: (1, 1) bool, whether an earlier layer found the token; None where none has looked.
        first: (1, E) contiguous, input of the text's first token, of the type of the hidden states; None where this
            layer does not look.
        threshold: least cosine similarity.
    """

    known: Tensor | None
    first: Tensor | None
    threshold: float


def decide_on_gpu(
    hidden: Tensor,
    weights: Tensor,
    potential: Tensor,
    sets: Tensor,
    place: int,
    top_ks: tuple[int, ...],
    query: Tensor,
    *,
    sinks: Sinks | None = None,
    factors: HeadFactors | None = None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Groups of one new token, written behind those of the tokens before it.

    Args:
        hidden: (1, 1, E) in half or single precision, contiguous.
        weights: (E, K) float32: W_g C^T / tau, contiguous.
        potential: (K,) float32.
        sets: (S, 1, N) int64 bit sets by top-k, the last dimension contiguous; those at `place` are written.
        place: number of the new token.
        top_ks: S distinct k, at most 7, see `in_bytes`.
        query: (1, H, 1, D), the last dimension contiguous.
        sinks: None where none are looked for.
        factors: None where queries stay as they are.

    Returns:
        (K,) probabilities float32; whether the token is a text sink, (1, 1) bool, None where nobody looked; queries,
        (1, H, 1, D).
    """
    heads, head_size, q_head, device = query.shape[1], query.shape[3], query.stride(1), hidden.device
    probabilities, found, scaled = torch.empty(weights.shape[1], dtype=torch.float32, device=device), None, query
    looks, knows = False, False
    first = known = flag = probabilities  # where they are not used
    threshold = 0.0
    if sinks is not None:
        looks, knows, found, threshold = sinks.first is not None, sinks.known is not None, sinks.known, sinks.threshold
        if sinks.known is not None:
            known = sinks.known
        if sinks.first is not None:
            first = sinks.first
            found = flag = torch.empty((1, 1), dtype=torch.bool, device=device)
    numbers, growth = (probabilities, probabilities, probabilities), CONSTANT
    if factors is not None:
        scaled = torch.empty((1, heads, 1, head_size), dtype=query.dtype, device=device)
        numbers, growth = factors.tensors, factors.growth
    kinds = (weights.shape, top_ks, looks, knows, query.shape, q_head, factors is not None)
    starts = aligned(hidden, weights, potential, sets, query, first, known, *numbers)
    launches = alike("decide", device, hidden.dtype, weights.dtype, query.dtype, kinds, starts)
    if launches.numbers is None:
        (width, groups), padded = weights.shape, power_of_two(weights.shape[1])
        sizes = (padded, min(CELLS // padded, power_of_two(width)), head_size, power_of_two(head_size))
        flags = (looks, knows, factors is not None)
        launches.numbers = (groups, in_bytes(top_ks), len(top_ks), max(top_ks), width, *flags, *sizes)
    tensors = (hidden, weights, potential, first, known, probabilities, sets, flag, query, scaled, *numbers)
    arguments = (*tensors, q_head, sets.stride(0), place, float(threshold), *growth, *launches.numbers)
    programs = 1 + heads if factors is not None else 1
    launches.run("decide", decide_kernel, (programs, 1, 1), arguments, WARPS, STAGES)
    return probabilities, found, scaled
