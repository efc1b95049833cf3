"""Routing on a GPU, in one Triton kernel each: groups by the causal rule with text sinks, and groups by top-k."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.gpu.launch import aligned, alike, power_of_two, tiles_of
from focus_runtime.routing.route_kernel import route_kernel, sets_kernel

FEWEST_COLUMNS = 16  # of a matrix product
TILE, LONG_TILE = (32, 128), (64, 64)  # tokens and width of a tile; with few tokens few programs would be at work
LONG_FROM = 16384  # tokens (H100: 16.7 us in place of 22.8, and 12.5 in place of 10.2 at 4,096)
WARPS, STAGES = 4, 3
SETS_TOKENS = 64


def in_bytes(top_ks: tuple[int, ...]) -> int:
    """One k in each byte of a whole number, the first lowest: what kernels are compiled for; at most 7 fit.

    Args:
        top_ks: each below 256.
    """
    return sum(top_k << (8 * place) for place, top_k in enumerate(top_ks))


@dataclass(slots=True, eq=False)  # frozen ones take as long to make as a launch
class TextSinks:
    """How sinks that stand anywhere in a text are found, see composition/text_sinks.py.

    Attributes:
        first: (B, E), input of each text's first token, contiguous, of the type of the hidden states; of one text also
            its hidden states, which begin with it.
        known: (B, T) bool, contiguous: tokens that earlier layers found; None where none has looked.
        threshold: least cosine similarity.
        first_movable: number of the first of these tokens that may be found, in a text without padding.
        padding: (B,) int64, padding tokens before each text; None for none.
    """

    first: Tensor
    known: Tensor | None
    threshold: float
    first_movable: int
    padding: Tensor | None = None


def route_on_gpu(
    hidden: Tensor, weights: Tensor, potential: Tensor, top_ks: tuple[int, ...], sinks: TextSinks | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Probabilities and groups of tokens, as `CentroidRouter.own_assignment` defines them, for each of several top-k.

    Args:
        hidden: (B, T, E) in half or single precision, contiguous.
        weights: (E, K) float32: W_g C^T / tau, contiguous.
        potential: (K,) float32.
        top_ks: S distinct k, at most 7, see `in_bytes`.
        sinks: None where none are looked for.

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
        known, padding = (
            flags if sinks.known is None else sinks.known,
            first if sinks.padding is None else sinks.padding,
        )
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
