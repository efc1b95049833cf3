"""Pairs by distance and as tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_explorer.statistics import layer_measures as distances
from focus_explorer.statistics.pair_tables import content_words, distances_table, long_range_rows
from focus_explorer.statistics.resample import Resampler
from focus_runtime.config import CONSTANT
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.distances import distance_bins
from focus_runtime.mask.rule import PairRule


def dense(membership, starts, rule):
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
        ruled[square] = allowed_pairs(none, none, position, position, rule).numpy()
        kept[square] = allowed_pairs(bits, bits, position, position, rule).numpy()
    return causal, ruled, kept


@pytest.mark.parametrize("growth", [CONSTANT, (5, 30)])
@pytest.mark.parametrize("few_entries", [False, True])
@pytest.mark.parametrize("sliding", [None, 20, 3, 1])
@pytest.mark.parametrize("window", [0, 3, 40])
def test_counts_are_those_of_the_dense_mask(fresh_seed, monkeypatch, window, sliding, few_entries, growth):
    rule = PairRule(window, 2, sliding, growth)
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
    bins = distances.Bins(*distance_bins(max(lengths), [PairRule(window, 2), rule]))
    counts = distances.count_pairs(membership, starts, bins, rule, resampler)
    apart = np.arange(total)[:, None] - np.arange(total)[None, :]
    pairs, ruled, kept = dense(membership, starts, rule)
    undecided = pairs & ~ruled & (apart < (sliding or total))
    counted = {"pairs": pairs, "ruled": ruled, "kept": kept, "undecided": undecided}
    for name, pairs in counted.items():
        for number, (first, last) in enumerate(zip(bins.first, bins.last, strict=True)):
            rows = (pairs & (apart >= first) & (apart <= last)).sum(axis=1)
            assert getattr(counts, name)[:, number].tolist() == np.bincount(units, rows).tolist(), name


def test_distances_have_their_baselines(measured, sample):
    rows = distances_table(sample, *measured[1:]).to_pylist()
    near = [row for row in rows if row["last"] <= sample.parts[0][0].rule.window]
    assert near
    assert all(row["share"] == row["window_only"] == row["random"] == 1 for row in near)
    far = next(row for row in rows if row["layer"] == 3 and row["first"] > 100)
    assert far["window_only"] < 0.02
    assert far["low"] < far["share"] < far["high"]
    assert far["shuffled"] == pytest.approx(0.25, abs=0.03)
    mean = next(row for row in rows if row["layer"] is None and row["first"] == far["first"])
    assert mean["share"] == pytest.approx(
        np.mean([row["share"] for row in rows if row["layer"] is not None and row["first"] == far["first"]])
    )


def test_long_range_pairs_are_distant_nouns_of_one_group(sample):
    places = content_words(sample)
    assert set(sample.schemes["pos"].codes[places]) == {2}
    chosen = np.eye(4, dtype=np.float32)[sample.focus.tops[1][places]]
    rows = long_range_rows(sample, 7, places, chosen)
    assert rows
    assert all(row["distance"] > sample.parts[0][0].rule.window and row["affinity"] == 1 for row in rows)
    assert len({frozenset((row["query_piece"], row["key_piece"])) for row in rows}) == len(rows)
