"""Pairs by distance, and the strongest long-range pairs."""

from __future__ import annotations

import numpy as np
import pytest

from focus_explorer.statistics.pair_tables import content_words, distances_table, long_range_rows


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
