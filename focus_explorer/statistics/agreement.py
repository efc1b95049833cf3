"""How far two labellings of the same tokens agree: layers of a run, or one layer under two sets of centroids."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
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
    """Groups of a second run in the names of the first, for one layer.

    Attributes:
        names: for each group of the second run, the group of the first it is matched with, -1 where none is left.
        overlap: share of tokens whose groups are matched with each other; at best 1.
        rand: adjusted Rand index: 1 for the same partition, about 0 for unrelated ones.
    """

    names: list[int]
    overlap: float
    rand: float


def matched_groups(table: Table) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of a contingency table matched one to one so that they hold as many tokens as possible.

    The Hungarian method (Kuhn 1955).
    """
    from scipy.optimize import linear_sum_assignment  # importing scipy takes longer than the rest of this module

    rows, columns = linear_sum_assignment(table, maximize=True)
    return rows, columns


def align(first: Groups, second: Groups, num_first: int, num_second: int) -> Aligned:
    """Match groups one to one so that as many tokens as possible lie in matched groups.

    Args:
        first, second: (T,) group of every token in each run.
    """
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


@dataclass(frozen=True, slots=True)
class Agreement:
    """Adjusted Rand index and share of tokens in groups that are matched one to one, each with its permutation null."""

    rand: Estimate
    overlap: Estimate
    rand_shuffled: Values
    overlap_shuffled: Values


def agree(
    first: NDArray[np.integer],
    second: NDArray[np.integer],
    shape: tuple[int, int],
    resampler: Resampler,
    *,
    seed: int = 0,
) -> Agreement:
    """Compare two labellings of T tokens.

    Groups are matched once, on all tokens. Resamples keep the match, permuted labels are matched anew.

    Args:
        first, second: (T,) labels below `shape`.
    """
    by_unit = resampler.tally(first.astype(np.int64) * shape[1] + second, shape[0] * shape[1])
    table = by_unit.sum(axis=0).reshape(shape)
    drawn = resampler.draw(by_unit).reshape(-1, *shape)
    rows, columns = matched_groups(table)
    matched = drawn[:, rows, columns].sum(axis=1) / drawn.sum(axis=(1, 2))
    shuffled = shuffled_tables(table, draws=SHUFFLES, seed=seed)
    return Agreement(
        Estimate(float(adjusted_rand(table)), adjusted_rand(drawn), -1.0),
        Estimate(float(table[rows, columns].sum() / table.sum()), matched),
        adjusted_rand(shuffled),
        np.array([best_overlap(one) for one in shuffled]),
    )


def best_overlap(table: NDArray[np.integer] | Values) -> float:
    """Share of tokens in groups matched one to one, at best."""
    rows, columns = matched_groups(table)
    return float(table[rows, columns].sum() / table.sum())


def layer_agreement_table(sample: Sample, *, seed: int = 0) -> pa.Table:
    """Every two of the L layers of a sample, in order of layers: L (L - 1) / 2 rows.

    `random` and `overlap_random` compare the same two layers under random centroids.
    """
    resampler = Resampler(sample.units, resamples=RESAMPLES, seed=seed)
    shape = (sample.num_groups, sample.num_groups)
    rows = []
    for a, first in enumerate(sample.layers):
        for b in range(a + 1, len(sample.layers)):
            agreement = agree(sample.focus.tops[a], sample.focus.tops[b], shape, resampler, seed=seed)
            row = agreement_row(agreement, resampler, sample) | {"layer": first, "other_layer": sample.layers[b]}
            rows.append(row | _random(sample, a, b, shape))
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def agreement_row(agreement: Agreement, resampler: Resampler, sample: Sample) -> dict[str, Any]:
    """One comparison as a row.

    Returns:
        Numbers under the names of `SCHEMA`, without layers.
    """
    low, high = agreement.rand.interval(resampler.count)
    overlap_low, overlap_high = agreement.overlap.interval(resampler.count)
    return {
        "adjusted_rand": agreement.rand.value,
        "low": low,
        "high": high,
        "shuffled": float(agreement.rand_shuffled.mean()),
        "shuffled_high": float(percentile_ends(agreement.rand_shuffled)[1]),
        "overlap": agreement.overlap.value,
        "overlap_low": overlap_low,
        "overlap_high": overlap_high,
        "overlap_shuffled": float(agreement.overlap_shuffled.mean()),
        "count": sample.num_tokens,
        "units": resampler.count,
        "unit": sample.unit,
        "random": None,
        "overlap_random": None,
    }


def _random(sample: Sample, a: int, b: int, shape: tuple[int, int]) -> dict[str, float]:
    if sample.random is None:
        return {}
    table = contingency(sample.random.tops[a], sample.random.tops[b], shape)
    return {"random": float(adjusted_rand(table)), "overlap_random": best_overlap(table)}


def between_samples(first: Sample, second: Sample, *, seed: int = 0) -> pa.Table:
    """Two runs of the same tokens, layer by layer: centroid files, seeds or settings.

    Returns:
        Columns of `SCHEMA`.
    """
    resampler = Resampler(first.units, resamples=RESAMPLES, seed=seed)
    shape = (first.num_groups, second.num_groups)
    rows = []
    for layer in sorted(set(first.layers) & set(second.layers)):
        a, b = first.layers.index(layer), second.layers.index(layer)
        agreement = agree(first.focus.tops[a], second.focus.tops[b], shape, resampler, seed=seed)
        row = agreement_row(agreement, resampler, first) | {"layer": layer, "other_layer": layer}
        if first.random is not None:
            baseline = agree(first.random.tops[a], second.focus.tops[b], shape, resampler, seed=seed)
            row |= {"random": baseline.rand.value, "overlap_random": baseline.overlap.value}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def layer_agreement(tops: NDArray[np.uint8], num_groups: int) -> Values:
    """Adjusted Rand index of every two layers.

    Args:
        tops: (L, T) most probable groups.

    Returns:
        (L, L), symmetric, 1 on the diagonal.
    """
    layers, shape = len(tops), (num_groups, num_groups)
    agreement = np.eye(layers)
    for first in range(layers):
        for second in range(first + 1, layers):
            value = float(adjusted_rand(contingency(tops[first], tops[second], shape)))
            agreement[first, second] = agreement[second, first] = value
    return agreement


def shuffled_agreement(tops: NDArray[np.uint8], num_groups: int, *, seed: int = 0) -> Values:
    """Adjusted Rand index of each layer with the next one when the next one's assignments are permuted.

    Args:
        tops: (L, T) most probable groups.

    Returns:
        (L - 1,).
    """
    generator = np.random.default_rng(seed)
    shape = (num_groups, num_groups)
    tables = (next(permuted_tables(a, b, shape, draws=1, generator=generator)) for a, b in pairwise(tops))
    return np.array([float(adjusted_rand(table)) for table in tables])
