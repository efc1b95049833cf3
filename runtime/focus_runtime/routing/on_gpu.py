"""Routing on a GPU, in one Triton kernel each: groups by the causal rule, text sinks, and groups by top-k."""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.gpu.launch import aligned, alike, power_of_two, tiles_of
from focus_runtime.routing.route_kernel import alike_kernel, route_kernel, sets_kernel

FEWEST_COLUMNS = 16  # of a matrix product
TOKENS, WIDTH = 32, 128  # of a tile
WARPS, STAGES = 4, 3
ALIKE_TOKENS, ALIKE_WIDTH, ALIKE_STAGES = 16, 128, 2
SETS_TOKENS = 64


def route_on_gpu(hidden: Tensor, weights: Tensor, potential: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Probabilities and groups of tokens, as `CentroidRouter.own_assignment` defines them.

    Args:
        hidden: (B, T, E) in half or single precision, contiguous.
        weights: (E, K) float32: W_g C^T / tau.
        potential: (K,) float32.
        top_k: k.

    Returns:
        (B, T, K) float32, and (B, T) int64 bit sets.
    """
    batch, length, width = hidden.shape
    groups = weights.shape[1]
    probabilities = torch.empty(batch, length, groups, dtype=torch.float32, device=hidden.device)
    membership = torch.empty(batch, length, dtype=torch.int64, device=hidden.device)
    weights = weights.contiguous()
    tensors, dtypes = (hidden, weights, potential, probabilities, membership), (hidden.dtype, weights.dtype)
    launches = alike("routing", hidden.device, dtypes, width, groups, top_k, aligned(hidden, weights, potential))
    padded = max(FEWEST_COLUMNS, power_of_two(groups))
    numbers = (batch * length, groups, top_k, width, padded, TOKENS, WIDTH)
    grid = (tiles_of(batch * length, TOKENS), 1, 1)
    launches.run("route", route_kernel, grid, (*tensors, *numbers), WARPS, STAGES)
    return probabilities, membership


def find_alike_on_gpu(
    hidden: Tensor,
    first: Tensor,
    known: Tensor,
    threshold: float,
    first_movable: int,
    membership: Tensor,
    num_groups: int,
    padding: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Tokens whose hidden states resemble their text's first token's, and those known before; both get all groups.

    Args:
        hidden: (B, T, E) in half or single precision, contiguous.
        first: (B, E), contiguous, of the same type.
        known: (B, T) bool, contiguous.
        threshold: least cosine similarity.
        first_movable: number of the first of these tokens that may be found, in a text without padding.
        membership: (B, T) int64 bit sets, contiguous.
        num_groups: K.
        padding: (B,) int64, padding tokens before each text; None for none.

    Returns:
        (B, T) bool, and (B, T) int64 bit sets.
    """
    batch, length, width = hidden.shape
    found, own = torch.empty_like(known), torch.empty_like(membership)
    starts = aligned(hidden, first, known, membership)
    launches = alike("alike", hidden.device, hidden.dtype, width, num_groups, padding is None, starts)
    bits = known.view(torch.int8)
    tensors = (hidden, first, bits, bits if padding is None else padding, membership, found.view(torch.int8), own)
    sizes = (num_groups, width, padding is not None, ALIKE_TOKENS, ALIKE_WIDTH)
    grid = (tiles_of(length, ALIKE_TOKENS), batch, 1)
    launches.run(
        "alike", alike_kernel, grid, (*tensors, length, float(threshold), first_movable, *sizes), WARPS, ALIKE_STAGES
    )
    return found, own


def in_bytes(top_ks: tuple[int, ...]) -> int:
    """One k in each byte of a whole number, the first lowest: what kernels are compiled for; at most 7 fit.

    Args:
        top_ks: each below 256.
    """
    return sum(top_k << (8 * place) for place, top_k in enumerate(top_ks))


def sets_on_gpu(
    probabilities: Tensor, membership: Tensor, everywhere: Tensor | None, top_ks: tuple[int, ...], usual: int
) -> Tensor:
    """Groups of every token for each of several top-k.

    Args:
        probabilities: (B, T, K) float32, contiguous.
        membership: (B, T) int64 bit sets for the usual top-k, contiguous.
        everywhere: (B, T) bool, contiguous: tokens in all groups for every k but 0; None for none.
        top_ks: S distinct k, at most 7, see `in_bytes`.
        usual: the top-k of `membership`.

    Returns:
        (S, B, T) int64.
    """
    groups, number = probabilities.shape[-1], membership.numel()
    sets = torch.empty(len(top_ks), *membership.shape, dtype=torch.int64, device=membership.device)
    kinds = (groups, top_ks, usual, everywhere is None)
    starts = aligned(probabilities, membership, membership if everywhere is None else everywhere)
    launches = alike("sets", membership.device, kinds, starts)
    if launches.numbers is None:
        padded = power_of_two(groups)
        launches.numbers = (groups, in_bytes(top_ks), len(top_ks), usual, max(top_ks), everywhere is not None, padded)
    flags = membership if everywhere is None else everywhere.view(torch.int8)
    arguments = (probabilities, membership, flags, sets, number, *launches.numbers, SETS_TOKENS)
    launches.run("sets", sets_kernel, (tiles_of(number, SETS_TOKENS), 1, 1), arguments, WARPS, 1)
    return sets
