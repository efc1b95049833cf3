"""How far two labellings of the same tokens agree: layers of a run, or one layer under two sets of centroids."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.statistics.resample import Estimate, Resampler, Values
from focus_explorer.statistics.rows import schema_of
from focus_explorer.statistics.sample import Sample
from focus_runtime.measure.contingency import Table, adjusted_rand, contingency, permuted_tables, shuffled_tables
from focus_runtime.measure.intervals import percentile_ends

Groups = NDArray[np.int64] | NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Aligned:
    """Groups of a second run in the names of the first, for one layer."""

    names: list[int]  # group of the first run by group of the second, -1 where none is left
    overlap: float  # share of tokens whose groups are matched with each other
    rand: float  # adjusted Rand index


def matched_groups(table: Table) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of a table matched one to one so that they hold as many tokens as possible (Kuhn 1955)."""
    from scipy.optimize import linear_sum_assignment  # importing scipy takes longer than the rest of this module

    rows, columns = linear_sum_assignment(table, maximize=True)
    return rows, columns


def align(first: Groups, second: Groups, num_first: int, num_second: int) -> Aligned:
    """Match groups one to one so that as many of the T tokens as possible are in matched groups."""
    table = contingency(first, second, (num_first, num_second))
    rows, columns = matched_groups(table)
    names = [-1] * num_second
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        names[column] = row
    return Aligned(names, float(table[rows, columns].sum() / first.size), float(adjusted_rand(table)))


RESAMPLES, SHUFFLES = 300, 49
SCHEMA = schema_of(
    "layer:int32 other_layer:int32 adjusted_rand low high shuffled shuffled_high random "
    "overlap overlap_low overlap_high overlap_shuffled overlap_random count:int64 units:int64 unit:string"
)


def agree(
    first: NDArray[np.integer],
    second: NDArray[np.integer],
    shape: tuple[int, int],
    resampler: Resampler,
    sample: Sample,
) -> dict[str, Any]:
    """Two labellings of the T tokens of a sample compared: numbers under the names of `SCHEMA`, without layers.

    Groups are matched once, on all tokens. Resamples keep the match, permuted labels are matched again.
    """
    by_unit = resampler.tally(first.astype(np.int64) * shape[1] + second, shape[0] * shape[1])
    table = by_unit.sum(axis=0).reshape(shape)
    drawn = resampler.draw(by_unit).reshape(-1, *shape)
    rows, columns = matched_groups(table)
    rand = Estimate(float(adjusted_rand(table)), adjusted_rand(drawn), -1.0)
    matched = drawn[:, rows, columns].sum(axis=1) / drawn.sum(axis=(1, 2))
    overlap = Estimate(float(table[rows, columns].sum() / table.sum()), matched)
    shuffled = shuffled_tables(table, draws=SHUFFLES, seed=0)
    shuffled_rand = adjusted_rand(shuffled)
    low, high = rand.interval(resampler.count)
    overlap_low, overlap_high = overlap.interval(resampler.count)
    return {
        "adjusted_rand": rand.value,
        "low": low,
        "high": high,
        "shuffled": float(shuffled_rand.mean()),
        "shuffled_high": float(percentile_ends(shuffled_rand)[1]),
        "overlap": overlap.value,
        "overlap_low": overlap_low,
        "overlap_high": overlap_high,
        "overlap_shuffled": float(np.mean([best_overlap(one) for one in shuffled])),
        "count": sample.num_tokens,
        "units": resampler.count,
        "unit": sample.unit,
    }


def best_overlap(table: NDArray[np.integer] | Values) -> float:
    """Share of tokens in groups matched one to one, at best."""
    rows, columns = matched_groups(table)
    return float(table[rows, columns].sum() / table.sum())


def layer_agreement_table(sample: Sample) -> pa.Table:
    """Every two of the L layers of a sample, in order of layers: L (L - 1) / 2 rows.

    `random` and `overlap_random` compare the same two layers under random centroids.
    """
    resampler = Resampler(sample.units, resamples=RESAMPLES)
    shape, rows = (sample.num_groups, sample.num_groups), []
    for a, b in combinations(range(len(sample.layers)), 2):
        row = agree(sample.focus.tops[a], sample.focus.tops[b], shape, resampler, sample)
        if sample.random is not None:
            table = contingency(sample.random.tops[a], sample.random.tops[b], shape)
            row |= {"random": float(adjusted_rand(table)), "overlap_random": best_overlap(table)}
        rows.append(row | {"layer": sample.layers[a], "other_layer": sample.layers[b]})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def between_samples(first: Sample, second: Sample) -> pa.Table:
    """Two runs of the same tokens, layer by layer, in columns of `SCHEMA`: centroid files, seeds or settings."""
    resampler = Resampler(first.units, resamples=RESAMPLES)
    shape = (first.num_groups, second.num_groups)
    rows = []
    for layer in sorted(set(first.layers) & set(second.layers)):
        a, b = first.layers.index(layer), second.layers.index(layer)
        row = agree(first.focus.tops[a], second.focus.tops[b], shape, resampler, first)
        if first.random is not None:
            baseline = agree(first.random.tops[a], second.focus.tops[b], shape, resampler, first)
            row |= {"random": baseline["adjusted_rand"], "overlap_random": baseline["overlap"]}
        rows.append(row | {"layer": layer, "other_layer": layer})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def layer_agreement(tops: NDArray[np.uint8], num_groups: int) -> Values:
    """(L, L) adjusted Rand index of every two layers, of (L, T) most probable groups; 1 on the diagonal."""
    agreement = np.eye(len(tops))
    for first, second in combinations(range(len(tops)), 2):
        value = float(adjusted_rand(contingency(tops[first], tops[second], (num_groups, num_groups))))
        agreement[first, second] = agreement[second, first] = value
    return agreement


def shuffled_agreement(tops: NDArray[np.uint8], num_groups: int, *, seed: int = 0) -> Values:
    """(L - 1,) adjusted Rand index of each layer with the next one when the next one's assignments are permuted."""
    generator = np.random.default_rng(seed)
    shape = (num_groups, num_groups)
    tables = (next(permuted_tables(a, b, shape, draws=1, generator=generator)) for a, b in pairwise(tops))
    return np.array([float(adjusted_rand(table)) for table in tables])
