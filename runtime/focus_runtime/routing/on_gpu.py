"""Routing on a GPU in one Triton kernel: groups by the causal rule, for several top-k, with text sinks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from focus_runtime.gpu import aligned, alike, power_of_two, tiles_of


@triton.jit(do_not_specialize=["tokens", "length", "first_movable"])
def route_kernel(
    HIDDEN, WEIGHTS, POTENTIAL, FIRST, KNOWN, PADDING, PROBABILITIES, SETS, FOUND,
    tokens, length, threshold, first_movable,
    num_groups: tl.constexpr, top_ks: tl.constexpr, num_sets: tl.constexpr, most: tl.constexpr, width: tl.constexpr,
    LOOKS: tl.constexpr, KNOWS: tl.constexpr, PADDED: tl.constexpr, GROUPS: tl.constexpr, BT: tl.constexpr,
    BE: tl.constexpr,
):  # fmt: skip
    """Probabilities, and bit sets by top-k, of which `top_ks` holds one in each of its bytes. Where it LOOKS, tokens
    like their text's first one, and those KNOWN before, belong to all groups for every k but 0."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    k = tl.arange(0, GROUPS)
    e = tl.arange(0, BE)
    real_t, real_k = t < tokens, k < num_groups
    batch_t = t // length
    score_tk = tl.zeros([BT, GROUPS], dtype=tl.float32)
    dot_t = tl.zeros([BT], dtype=tl.float32)
    square_t = tl.zeros([BT], dtype=tl.float32)
    square_first_t = tl.zeros([BT], dtype=tl.float32)
    for start in range(0, width, BE):
        inside_e = start + e < width
        hidden_te = tl.load(
            HIDDEN + t.to(tl.int64)[:, None] * width + (start + e)[None, :],
            mask=real_t[:, None] & inside_e[None, :],
            other=0.0,
        ).to(tl.float32)
        weight_ek = tl.load(
            WEIGHTS + (start + e)[:, None] * num_groups + k[None, :],
            mask=inside_e[:, None] & real_k[None, :],
            other=0.0,
        )
        score_tk = tl.dot(hidden_te, weight_ek, score_tk, input_precision="tf32x3")
        if LOOKS:
            first_te = tl.load(
                FIRST + batch_t[:, None] * width + (start + e)[None, :],
                mask=real_t[:, None] & inside_e[None, :],
                other=0.0,
            ).to(tl.float32)
            dot_t += tl.sum(hidden_te * first_te, axis=1)
            square_t += tl.sum(hidden_te * hidden_te, axis=1)
            square_first_t += tl.sum(first_te * first_te, axis=1)
    score_tk += tl.load(POTENTIAL + k, mask=real_k, other=0.0)[None, :]
    score_tk = tl.where(real_k[None, :], score_tk, float("-inf"))
    weight_tk = tl.exp(score_tk - tl.max(score_tk, axis=1)[:, None])
    share_tk = weight_tk / tl.sum(weight_tk, axis=1)[:, None]
    place_tk = t.to(tl.int64)[:, None] * num_groups + k[None, :]
    tl.store(PROBABILITIES + place_tk, share_tk, mask=real_t[:, None] & real_k[None, :])
    everywhere_t = tl.zeros([BT], dtype=tl.int64)
    if LOOKS:
        size_t = tl.maximum(tl.sqrt(square_t), 1e-8) * tl.maximum(tl.sqrt(square_first_t), 1e-8)
        movable_t = t - batch_t * length >= first_movable
        if PADDED:
            movable_t = t - batch_t * length >= first_movable + tl.load(PADDING + batch_t, mask=real_t, other=0)
        found_t = (dot_t / size_t >= threshold) & movable_t
        if KNOWS:
            found_t = found_t | (tl.load(KNOWN + t, mask=real_t, other=0).to(tl.int32) != 0)
        tl.store(FOUND + t, found_t, mask=real_t)
        everywhere_t = tl.where(found_t, all_bits(num_groups), everywhere_t)
    left_tk = tl.where(real_k[None, :], share_tk, -2.0)
    bits_t = tl.zeros([BT], dtype=tl.int64)
    for rank in tl.static_range(most + 1):
        for place in tl.static_range(num_sets):
            if (top_ks >> (8 * place)) & 255 == rank:
                own_t = bits_t
                if rank > 0:
                    own_t = own_t | everywhere_t
                tl.store(SETS + place * tokens.to(tl.int64) + t, own_t, mask=real_t)
        best_t = tl.argmax(left_tk, axis=1)  # the lower group of equals
        bits_t = bits_t | (tl.full([BT], 1, dtype=tl.int64) << best_t.to(tl.int64))
        left_tk = tl.where(k[None, :] == best_t[:, None], -1.0, left_tk)


@triton.jit
def all_bits(num_groups: tl.constexpr):
    """The bit set of all groups."""
    bits = tl.full([], -1, dtype=tl.int64)
    if num_groups < 64:
        bits = (tl.full([], 1, dtype=tl.int64) << num_groups) - 1
    return bits


FEWEST_COLUMNS = 16  # of a matrix product
TILE, LONG_TILE = (32, 128), (64, 64)  # tokens and width of a tile; with few tokens few programs would be at work
LONG_FROM = 16384  # tokens (H100: 16.7 us in place of 22.8, and 12.5 in place of 10.2 at 4,096)
WARPS, STAGES = 4, 3


def in_bytes(top_ks: tuple[int, ...]) -> int:
    """One k in each byte of a whole number, the first lowest: what kernels are compiled for; at most 7 fit."""
    return sum(top_k << (8 * place) for place, top_k in enumerate(top_ks))


@dataclass(slots=True, eq=False)  # frozen ones take as long to make as a launch
class TextSinks:
    """How sinks that stand anywhere in a text are found, see composition/groups.py; tensors are contiguous."""

    first: Tensor  # (B, E), input of each text's first token; of one text also its hidden states, which begin with it
    known: Tensor | None  # (B, T) bool, tokens that earlier layers found; None where none has looked
    threshold: float
    first_movable: int  # number of the first of these tokens that may be found, in a text without padding
    padding: Tensor | None = None  # (B,) int64, padding tokens before each text; None for none


def route_on_gpu(
    hidden: Tensor, weights: Tensor, potential: Tensor, top_ks: tuple[int, ...], sinks: TextSinks | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Probabilities and groups of tokens, as `CentroidRouter.own_assignment` defines them, for each of several top-k.

    Args:
        hidden: (B, T, E) in half or single precision, contiguous.
        weights: (E, K) float32: W_g C^T / tau, contiguous.
        top_ks: S distinct k, at most 7, see `in_bytes`.

    Returns:
        (B, T, K) float32; (S, B, T) int64 bit sets; the sinks, (B, T) bool, which are in all groups for every k but 0,
        None where none are looked for.
    """
    batch, length, width = hidden.shape
    device, tokens = hidden.device, batch * length
    probabilities = torch.empty((batch, length, weights.shape[1]), dtype=torch.float32, device=device)
    sets = torch.empty((len(top_ks), batch, length), dtype=torch.int64, device=device)
    first = known = flags = padding = probabilities  # where they are not used
    found, threshold, first_movable = None, 0.0, 0
    looks = knows = padded = False
    if sinks is not None:
        looks, knows, padded = True, sinks.known is not None, sinks.padding is not None
        first, threshold, first_movable = sinks.first, float(sinks.threshold), sinks.first_movable
        found = flags = torch.empty((batch, length), dtype=torch.bool, device=device)
        known = flags if sinks.known is None else sinks.known
        padding = first if sinks.padding is None else sinks.padding
    tile = TILE if tokens < LONG_FROM else LONG_TILE
    kinds = (weights.shape, top_ks, looks, knows, padded, tile)
    starts = aligned(hidden, weights, potential, first, known, padding)
    launches = alike("routing", device, hidden.dtype, weights.dtype, kinds, starts)
    if launches.numbers is None:
        groups = weights.shape[1]
        rows = max(FEWEST_COLUMNS, power_of_two(groups))
        numbers = (groups, in_bytes(top_ks), len(top_ks), max(top_ks), width, looks, knows, padded)
        launches.numbers = (*numbers, rows, *tile)
    tensors = (hidden, weights, potential, first, known, padding, probabilities, sets, flags)
    arguments = (*tensors, tokens, length, threshold, first_movable, *launches.numbers)
    launches.run("route", route_kernel, (tiles_of(tokens, tile[0]), 1, 1), arguments, WARPS, STAGES)
    return probabilities, sets, found
