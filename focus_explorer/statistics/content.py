"""What groups hold: characteristic pieces, and the share of every category in every group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, norm

from focus_explorer.data.group_labels import group_label
from focus_explorer.statistics.group_content import contingency, log_odds
from focus_explorer.statistics.resample import Resampler, ends, ratio
from focus_explorer.statistics.sample import Sample

CHARACTERISTIC, FREQUENT = 12, 12
LEAST_USES, MOST_Q = 2, 0.05


def characteristic_table(sample: Sample) -> pa.Table:
    """The most characteristic and the most frequent pieces of every group.

    `kind` is `characteristic` (log-odds with an informative prior above what chance gives, false discovery rate 5 %
    within the layer) or `frequent`; `z` is in standard errors, `p_value` two-sided of z, `q_value` corrected over
    all pieces and groups of the layer; `uses` in the group, `uses_in_text` in all.
    """
    rows: list[dict[str, Any]] = []
    shape = (sample.num_groups, len(sample.pieces))
    everywhere = np.bincount(sample.piece, minlength=shape[1])
    for place, layer in enumerate(sample.layers):
        uses = contingency(sample.focus.tops[place], sample.piece, shape)
        scores = log_odds(uses, prior_size=sample.num_tokens / sample.num_groups)
        values = 2 * norm.sf(np.abs(scores))
        corrected = false_discovery_control(values.ravel()).reshape(shape)
        for group in range(sample.num_groups):
            z, here = scores[group], uses[group]
            strong = np.where((here >= LEAST_USES) & (z > 0) & (corrected[group] <= MOST_Q), z, 0.0)
            for kind, order in (
                ("characteristic", _best(strong, CHARACTERISTIC)),
                ("frequent", _best(here, FREQUENT)),
            ):
                rows += [
                    {
                        "layer": layer,
                        "group": group_label(group),
                        "kind": kind,
                        "rank": rank + 1,
                        "piece": sample.pieces[piece],
                        "uses": int(here[piece]),
                        "uses_in_text": int(everywhere[piece]),
                        "z": float(z[piece]),
                        "p_value": float(values[group, piece]),
                        "q_value": float(corrected[group, piece]),
                    }
                    for rank, piece in enumerate(order)
                ]
    kinds = {"layer": pa.int32(), "rank": pa.int32(), "uses": pa.int64(), "uses_in_text": pa.int64()}
    names = ("layer", "group", "kind", "rank", "piece", "uses", "uses_in_text", "z", "p_value", "q_value")
    text = ("group", "kind", "piece")
    schema = pa.schema([(name, pa.string() if name in text else kinds.get(name, pa.float64())) for name in names])
    return pa.Table.from_pylist(rows, schema=schema)


def _best(scores: NDArray[Any], limit: int) -> list[int]:
    order = np.argsort(-scores, kind="stable")[:limit]
    return [int(place) for place in order if scores[place] > 0]


def categories_table(sample: Sample, *, seed: int = 0) -> pa.Table:
    """Share of every category in every group, beside its share in the text.

    `low` and `high` are a bootstrap interval over units; `z` is the distance from what shuffled assignments give
    (hypergeometric), in its standard deviations, with `p_value` two-sided and `q_value` corrected over all groups and
    categories of the layer and scheme. `random` is the share in the random group with the largest overlap.
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
    values = 2 * norm.sf(np.abs(z))
    corrected = false_discovery_control(values.ravel()).reshape(values.shape)
    random = _random_shares(sample, place, name, counts.shape)
    groups_used = np.flatnonzero(sizes)
    shares = counts[groups_used] / sizes[groups_used, None]
    low, high = _ends(shares, replicates[:, groups_used], resampler.count)
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


def _ends(shares: NDArray[np.float64], replicates: NDArray[np.float64], units: int) -> tuple[Any, Any]:
    """Intervals of (K, C) shares; NaN where a group was lost in most resamples or there is one unit."""
    missing = np.isnan(replicates).any(axis=2).mean(axis=0) > 0.5
    if units < 2:
        return np.full(shares.shape, np.nan), np.full(shares.shape, np.nan)
    filled = np.where(np.isnan(replicates), shares[None], replicates)
    low, high = ends(shares.ravel(), filled.reshape(len(filled), -1), units)
    low, high = low.reshape(shares.shape), high.reshape(shares.shape)
    return np.where(missing[:, None], np.nan, low), np.where(missing[:, None], np.nan, high)


def _random_shares(sample: Sample, place: int, name: str, shape: tuple[int, int]) -> NDArray[np.float64]:
    """(K, C) shares in the random groups matched with ours, NaN where a group has no partner."""
    if sample.random is None:
        return np.full(shape, np.nan)
    from focus_explorer.statistics.alignment import align

    tops = sample.random.tops[place]
    table = contingency(tops, sample.schemes[name].codes, shape).astype(np.float64)
    shares = ratio(table, table.sum(axis=1, keepdims=True))
    partner = np.array(align(tops, sample.focus.tops[place], shape[0], shape[0]).names)
    return np.where((partner >= 0)[:, None], shares[np.maximum(partner, 0)], np.nan)
