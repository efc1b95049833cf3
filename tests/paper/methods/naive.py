"""Attention one query at a time in float64: what every baseline's own definition is written with."""

from __future__ import annotations

import math

import torch


def random_heads(length, *, query_heads=4, key_heads=2, size=8, batch=2, dtype=torch.float64):
    """Queries, keys and values of fresh random numbers."""
    return (
        torch.randn(batch, query_heads, length, size, dtype=dtype),
        torch.randn(batch, key_heads, length, size, dtype=dtype),
        torch.randn(batch, key_heads, length, size, dtype=dtype),
    )


def every_query(query, key):
    """(batch, query head, key head, position) of every query."""
    group = query.shape[1] // key.shape[1]
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            for i in range(query.shape[2]):
                yield b, h, h // group, i


def score(query_row, key_row, scale, softcap):
    plain = float(query_row @ key_row) * scale
    return plain if softcap is None else softcap * math.tanh(plain / softcap)


def naive_attention(query, key, value, log_weight, *, scale=None, softcap=None):
    """Softmax over j <= i of the score plus log_weight(b, h, i, j), which is None where the pair is not read.

    Returns the output and the number of pairs read.
    """
    query, key, value = query.double(), key.double(), value.double()
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    out, pairs = torch.zeros_like(query), 0
    for b, h, g, i in every_query(query, key):
        weights = [log_weight(b, h, i, j) for j in range(i + 1)]
        read = [j for j in range(i + 1) if weights[j] is not None]
        logits = [score(query[b, h, i], key[b, g, j], scale, softcap) + weights[j] for j in read]
        probabilities = torch.softmax(torch.tensor(logits, dtype=torch.float64), dim=0)
        out[b, h, i] = probabilities @ value[b, g, read]
        pairs += len(read)
    return out, pairs
