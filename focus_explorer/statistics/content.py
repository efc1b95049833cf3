"""What groups hold: characteristic pieces, and the share of every category in every group."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, norm

from focus_explorer.group_labels import group_label
from focus_explorer.group_statistics import contingency, log_odds
from focus_explorer.statistics.resample import Estimate, Resampler, ratio
from focus_explorer.statistics.sample import Sample

CHARACTERISTIC, FREQUENT = 12, 12
LEAST_USES, MOST_Q = 2, 0.05


def characteristic_table(sample: Sample) -> pa.Table:
    """The most characteristic and the most frequent pieces of every group.

    `kind` is `characteristic` (log-odds with an informative prior above what chance gives at a false discovery rate of
    5 % within the layer) or `frequent`; `z` is in standard errors, `p_value` two-sided of z, `q_value` corrected over all
    pieces and groups of the layer; `uses` in the group, `uses_in_text` in all.
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
                        "layer": layer, "group": group_label(group), "kind": kind, "rank": rank + 1,
                        "piece": sample.pieces[piece], "uses": int(here[piece]),
                        "uses_in_text": int(everywhere[piece]), "z": float(z[piece]),
                        "p_value": float(values[group, piece]), "q_value": float(corrected[group, piece]),
                    }
                    for rank, piece in enumerate(order)
                ]  # fmt: skip
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
    parts: list[dict[str, Any]] = []
    for place, layer in enumerate(sample.layers):
        for name in sample.schemes:
            parts += _layer_categories(sample, place, layer, name, resampler)
    kinds = {"layer": pa.int32(), "tokens": pa.int64(), "group_tokens": pa.int64(), "units": pa.int64()}
    names = ("layer", "group", "scheme", "category", "tokens", "group_tokens", "share", "low", "high", "share_of_text",
             "lift", "z", "p_value", "q_value", "random", "units", "unit")  # fmt: skip
    text = ("group", "scheme", "category", "unit")
    schema = pa.schema([(name, pa.string() if name in text else kinds.get(name, pa.float64())) for name in names])
    return pa.Table.from_pylist(parts, schema=schema)


def _layer_categories(sample: Sample, place: int, layer: int, name: str, resampler: Resampler) -> list[dict[str, Any]]:
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
    rows = []
    for group in range(groups):
        for category in range(width):
            if not sizes[group]:
                continue
            share = float(counts[group, category] / sizes[group])
            low, high = Estimate(share, replicates[:, group, category]).interval(resampler.count)
            rows.append(
                {
                    "layer": layer, "group": group_label(group), "scheme": name, "category": scheme.names[category],
                    "tokens": int(counts[group, category]), "group_tokens": int(sizes[group]), "share": share,
                    "low": low, "high": high, "share_of_text": float(base[category]),
                    "lift": share / float(base[category]) if base[category] else None,
                    "z": float(z[group, category]), "p_value": float(values[group, category]),
                    "q_value": float(corrected[group, category]),
                    "random": None if random is None or math.isnan(random[group, category])
                    else float(random[group, category]),
                    "units": resampler.count, "unit": sample.unit,
                }
            )  # fmt: skip
    return rows


def _random_shares(sample: Sample, place: int, name: str, shape: tuple[int, int]) -> NDArray[np.float64] | None:
    """(K, C) shares in the random groups matched with ours, NaN where a group has no partner."""
    if sample.random is None:
        return None
    from focus_explorer.alignment import align

    tops = sample.random.tops[place]
    table = contingency(tops, sample.schemes[name].codes, shape).astype(np.float64)
    shares = ratio(table, table.sum(axis=1, keepdims=True))
    partner = np.array(align(tops, sample.focus.tops[place], shape[0], shape[0]).names)
    return np.where((partner >= 0)[:, None], shares[np.maximum(partner, 0)], np.nan)
