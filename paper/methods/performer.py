"""Performer: softmax attention estimated by positive random features, FAVOR+ (Choromanski et al. 2020, 2009.14794).

exp(q.k) = E[exp(w.q - |q|^2/2) exp(w.k - |k|^2/2)] for standard normal w, so attention becomes sums over keys of m
numbers each, which causal attention adds up from the left. The sums are formed by halving: at each level the right half
of every block reads the summed left half. That is the prefix sum, in log2 T steps, and each sum can be scaled by the
largest feature of its own keys, all of them past, so that no feature overflows and no query is left with zeros.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from focus_runtime.errors import ModelError
from paper.methods.base import Call, Method


@dataclass(frozen=True, kw_only=True, slots=True)
class Performer(Method):
    """Causal attention with the estimated kernel, normalised by its own sums, in time O(T log T m D).

    The features of a layer are drawn once and shared by its heads. The variance of the estimate falls with 1/m.
    """

    num_features: int = 256
    seed: int = 0

    def start(self, index: int, query: Tensor, key: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1000 + index)
        return random_features(self.num_features, query.shape[-1], generator)

    def attend(self, call: Call) -> Tensor:
        if call.softcap is not None:
            raise ModelError(
                "a layer of this model caps its scores, which Performer cannot estimate",
                fix="use a model without softcap",
            )
        dtype = torch.promote_types(call.query.dtype, torch.float32)
        with torch.autocast(call.query.device.type, enabled=False):
            inputs = [x.to(dtype) for x in (call.grouped_query(), call.key, call.value)]
            features = call.state.to(call.query.device, dtype)
            # with gradients the sums are computed again in the backward pass rather than kept
            out = checkpoint(_favor, *inputs, features, math.sqrt(call.scale), use_reentrant=False)
        call.count_all()
        attended: Tensor = out.flatten(1, 2).to(call.query.dtype)
        return attended


def random_features(num_features: int, size: int, generator: torch.Generator) -> Tensor:
    """(m, D) standard normal vectors in fp32 whose directions are orthogonal in every block of D of them."""
    blocks = []
    for _ in range(math.ceil(num_features / size)):
        basis, triangle = torch.linalg.qr(torch.randn(size, size, generator=generator))
        blocks.append((basis * triangle.diagonal().sign()).T)  # the sign makes the directions uniform
    lengths = torch.randn(num_features, size, generator=generator).norm(dim=-1, keepdim=True)
    return torch.cat(blocks)[:num_features] * lengths


def _favor(query: Tensor, key: Tensor, value: Tensor, features: Tensor, root: float) -> Tensor:
    """(B, Hkv, G, T, D), (B, Hkv, T, D), (B, Hkv, T, D) -> (B, Hkv, G, T, D); root: of the scale."""
    length = key.shape[2]
    extra = 2 ** math.ceil(math.log2(length)) - length  # tokens after the text, which nothing in it reads
    log_query = pad(query * root @ features.T, (0, 0, 0, extra))  # |q|^2/2 cancels in the ratio
    key = key * root
    log_key = key @ features.T - key.square().sum(dim=-1, keepdim=True) / 2
    log_key = pad(log_key, (0, 0, 0, extra))[:, :, None]
    ones = value.new_ones(*value.shape[:-1], 1)
    values = pad(torch.cat([value, ones], dim=-1), (0, 0, 0, extra))[:, :, None]
    sums = _causal_sums(log_query, log_key, values)[:, :, :, :length]
    return sums[..., :-1] / sums[..., -1:]


def _causal_sums(log_query: Tensor, log_key: Tensor, values: Tensor) -> Tensor:
    """Sum over j <= i and features f of exp(log_query[i, f] + log_key[j, f]) values[j], each row at its own scale.

    Args:
        log_query: (..., T, m); log_key: (..., T, m); values: (..., T, E), broadcasting; T a power of 2.

    Returns:
        (..., T, E).
    """
    length, count = log_query.shape[-2:]
    level = torch.logsumexp(log_query + log_key, dim=-1, keepdim=True)  # a token's own key
    sums = values.expand(*log_query.shape[:-1], values.shape[-1])
    half = 1
    while half < length:
        shape = (length // (2 * half), 2, half)
        keys, left = (x.unflatten(-2, shape)[..., 0, :, :] for x in (log_key, values))
        top = keys.amax(dim=-2, keepdim=True)
        weights = log_query.unflatten(-2, shape)[..., 1, :, :] + top
        part_level = weights.amax(dim=-1, keepdim=True)
        weights, keys = torch.exp(weights - part_level), torch.exp(keys - top)
        wide = half * (count + left.shape[-1]) > count * left.shape[-1]  # which order of products is the smaller one
        keys = keys.transpose(-1, -2)
        part = weights @ (keys @ left) if wide else (weights @ keys) @ left
        before, later = sums.unflatten(-2, shape).unbind(-3)
        before_level, later_level = level.unflatten(-2, shape).unbind(-3)
        joint = torch.maximum(later_level, part_level)
        later = later * torch.exp(later_level - joint) + part * torch.exp(part_level - joint)
        sums = torch.stack([before, later], dim=-3).flatten(-4, -2)
        level = torch.stack([before_level, joint], dim=-3).flatten(-4, -2)
        half *= 2
    return sums
