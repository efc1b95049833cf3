"""Pairs by distance against the dense mask, documents kept apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_explorer.statistics import distances
from focus_explorer.statistics.resample import Resampler
from focus_runtime.mask.rule import PairRule, allowed_pairs


def dense(membership, starts, window, num_sinks):
    """(T, T) causal pairs within a document, those window and sinks keep, and those the mask keeps."""
    total = membership.size
    causal = np.zeros((total, total), dtype=bool)
    ruled, kept = causal.copy(), causal.copy()
    for start in np.unique(starts):
        places = np.flatnonzero(starts == start)
        bits = torch.from_numpy(membership[places])
        position = torch.arange(places.size)
        square = np.ix_(places, places)
        none = torch.zeros_like(bits)
        causal[square] = np.tril(np.ones((places.size, places.size), dtype=bool))
        ruled[square] = allowed_pairs(none, none, position, position, PairRule(window, num_sinks)).numpy()
        kept[square] = allowed_pairs(bits, bits, position, position, PairRule(window, num_sinks)).numpy()
    return causal, ruled, kept


@pytest.mark.parametrize("few_entries", [False, True])
@pytest.mark.parametrize("window", [0, 3, 40])
def test_counts_are_those_of_the_dense_mask(fresh_seed, monkeypatch, window, few_entries):
    if few_entries:
        monkeypatch.setattr(distances, "TABLE_ENTRIES", 150)
    generator = np.random.default_rng(fresh_seed)
    lengths = [23, 2, 41]
    starts = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    total = starts.size
    membership = (1 << generator.integers(0, 4, total)) | (1 << generator.integers(0, 4, total))
    units = np.sort(generator.integers(0, 6, total))
    _, units = np.unique(units, return_inverse=True)
    resampler = Resampler(units, resamples=2)
    bins = distances.Bins.of(max(lengths), window)
    found = distances.count_pairs(membership, starts, bins, window, 2, resampler)
    apart = np.arange(total)[:, None] - np.arange(total)[None, :]
    for name, pairs in zip(("pairs", "ruled", "kept"), dense(membership, starts, window, 2), strict=True):
        for number, (first, last) in enumerate(zip(bins.first, bins.last, strict=True)):
            rows = (pairs & (apart >= first) & (apart <= last)).sum(axis=1)
            assert getattr(found, name)[:, number].tolist() == np.bincount(units, rows).tolist(), name
