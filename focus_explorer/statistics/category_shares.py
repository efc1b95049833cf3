"""Share of every category in every group, with its interval and its baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.statistics.alignment import align
from focus_explorer.statistics.resample import Resampler, held, ratio
from focus_explorer.statistics.sample import Sample
from focus_explorer.statistics.significance import corrected_p_values, hypergeometric_p_values
from focus_runtime.mask.rule import group_label
from focus_runtime.measure.contingency import contingency
from focus_runtime.measure.intervals import recentred_interval


def categories_table(sample: Sample, *, seed: int = 0) -> pa.Table:
    """Share of every category in every group, and its share in the text.

    `low` and `high` are a bootstrap interval over units; `z` is the distance from what permuted assignments give
    (hypergeometric), in its standard deviations; `p_value` is two-sided and exact, from that distribution; `q_value` is
    corrected over the groups and categories of the layer and scheme that have tokens. `random` is the share in the
    random group with the largest overlap.
    """
    resampler = Resampler(sample.units, resamples=300, seed=seed)
    parts = [
        _layer_categories(sample, place, layer, name, resampler)
        for place, layer in enumerate(sample.layers)
        for name in sample.schemes
    ]
    kinds = {"layer": pa.int32(), "tokens": pa.int64(), "group_tokens": pa.int64(), "units": pa.int64()}
    names = (
        "layer",
        "group",
        "scheme",
        "category",
        "tokens",
        "group_tokens",
        "share",
        "low",
        "high",
        "share_of_text",
        "lift",
        "z",
        "p_value",
        "q_value",
        "random",
        "units",
        "unit",
    )
    text = ("group", "scheme", "category", "unit")
    schema = pa.schema([(name, pa.string() if name in text else kinds.get(name, pa.float64())) for name in names])
    return pa.concat_tables([pa.Table.from_pydict(part, schema=schema) for part in parts])


def _layer_categories(sample: Sample, place: int, layer: int, name: str, resampler: Resampler) -> dict[str, list[Any]]:
    scheme, groups = sample.schemes[name], sample.num_groups
    width = len(scheme.names)
    top = sample.focus.tops[place].astype(np.int64)
    by_unit = resampler.tally(top * width + scheme.codes, groups * width)
    counts = by_unit.sum(axis=0).reshape(groups, width)
    drawn = resampler.draw(by_unit).reshape(-1, groups, width)
    replicates = ratio(drawn, drawn.sum(axis=2, keepdims=True))
    sizes, total = counts.sum(axis=1), counts.sum()
    base = counts.sum(axis=0) / total
    expected = sizes[:, None] * base
    spread = np.sqrt(expected * (1 - base) * (total - sizes[:, None]) / max(total - 1, 1))
    z = np.divide(counts - expected, spread, out=np.zeros_like(counts), where=spread > 0)
    values, corrected = hypergeometric_p_values(counts), np.ones_like(counts)
    compared = np.outer(sizes > 0, base > 0)
    corrected[compared] = corrected_p_values(values[compared])
    random = _random_shares(sample, place, name, counts.shape)
    groups_used = np.flatnonzero(sizes)
    shares = counts[groups_used] / sizes[groups_used, None]
    held_by = held(by_unit.reshape(-1, groups, width).sum(axis=2))[groups_used]
    low, high = _share_intervals(shares, replicates[:, groups_used], held_by)
    columns: dict[str, NDArray[Any]] = {
        "tokens": counts[groups_used].astype(np.int64),
        "group_tokens": np.broadcast_to(sizes[groups_used, None].astype(np.int64), shares.shape),
        "share": shares,
        "low": low,
        "high": high,
        "share_of_text": np.broadcast_to(base, shares.shape),
        "lift": ratio(shares, base[None]),
        "z": z[groups_used],
        "p_value": values[groups_used],
        "q_value": corrected[groups_used],
        "random": random[groups_used],
    }
    flat = {
        key: [None if value != value else value for value in part.ravel().tolist()] for key, part in columns.items()
    }
    fixed: dict[str, list[Any]] = {
        "layer": [layer] * shares.size,
        "scheme": [name] * shares.size,
        "group": [group_label(int(group)) for group in groups_used for _ in range(width)],
        "category": scheme.names * groups_used.size,
        "units": [resampler.count] * shares.size,
        "unit": [sample.unit] * shares.size,
    }
    return fixed | flat


def _share_intervals(shares: NDArray[np.float64], replicates: NDArray[np.float64], held_by: NDArray[np.intp]) -> Any:
    """Ends of the intervals of (K, C) shares; NaN for a group in one unit, or lost in most resamples.

    Args:
        shares: (K, C); replicates: (R, K, C), NaN where a resample has none of a group.
        held_by: (K,) units that have tokens of each group.
    """
    ends = np.full((2, *shares.shape), np.nan)
    for group, units in enumerate(held_by.tolist()):
        drawn = replicates[:, group]
        drawn = drawn[np.isfinite(drawn).all(axis=1)]
        if units > 1 and len(drawn) >= len(replicates) / 2:
            ends[:, group] = recentred_interval(shares[group], drawn, units)
    return ends


def _random_shares(sample: Sample, place: int, name: str, shape: tuple[int, int]) -> NDArray[np.float64]:
    """(K, C) shares in the random groups matched with the groups of the sample, NaN where a group has no partner."""
    if sample.random is None:
        return np.full(shape, np.nan)
    tops = sample.random.tops[place]
    table = contingency(tops, sample.schemes[name].codes, shape).astype(np.float64)
    shares = ratio(table, table.sum(axis=1, keepdims=True))
    partner = np.array(align(tops, sample.focus.tops[place], shape[0], shape[0]).names)
    return np.where((partner >= 0)[:, None], shares[np.maximum(partner, 0)], np.nan)
