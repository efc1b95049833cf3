"""Groups: their size marks, their purity with its interval, and the pieces and categories that stand out in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.statistics.agreement import align
from focus_explorer.statistics.resample import (
    Estimate,
    Resampler,
    corrected_p_values,
    held,
    hypergeometric_p_values,
    ratio,
    two_sided_p_values,
)
from focus_explorer.statistics.rows import schema_of
from focus_explorer.statistics.sample import Sample
from focus_runtime.mask.rule import group_label
from focus_runtime.measure.contingency import contingency, log_odds
from focus_runtime.measure.intervals import percentile_ends, recentred_interval

STARVED_SHARE = 0.1  # of an even share

Counts = NDArray[np.int64]
Values = NDArray[np.float64]
DRAWS = 200
CHARACTERISTIC, FREQUENT = 12, 12
LEAST_USES, MOST_Q = 2, 0.05


def group_flags(sizes: NDArray[np.int64]) -> list[list[str]]:
    """Marks of each of one layer's groups, by their (K,) tokens.

    `dead`: no tokens. `starved`: less than a tenth of an even share. `collapsed`: more than halfway between an even
    share and everything.
    """
    total, groups = int(sizes.sum()), len(sizes)
    flags: list[list[str]] = []
    for size in sizes.tolist():
        share = size / total if total else 0.0
        conditions = {
            "dead": size == 0,
            "starved": 0 < share < STARVED_SHARE / groups,
            "collapsed": groups > 1 and share > (1 + 1 / groups) / 2,
        }
        flags.append([name for name, holds in conditions.items() if holds])
    return flags


def group_purity_estimates(
    counts: Values, drawn: Values, used: Counts, leading: Counts, held_by: Counts
) -> list[Estimate]:
    """Purity of each of K groups, NaN for a group without tokens.

    Args:
        counts: (K, C) tokens by group and category.
        drawn: (R, K, C') the same in every resample, of the used categories alone.
        used: (C',) numbers of the categories that have tokens.
        leading: (K,) category of each group whose share is measured: its commonest one, or that of another labelling.
        held_by: (K,) resampled units that have tokens of each group.
    """
    column = {int(category): place for place, category in enumerate(used)}
    sizes, drawn_sizes = counts.sum(axis=1), drawn.sum(axis=2)
    estimates = []
    for group, category in enumerate(leading.tolist()):
        inside = drawn[:, group, column[category]] if category in column else np.zeros(len(drawn))
        value = float(counts[group, category] / sizes[group]) if sizes[group] else float("nan")
        estimates.append(Estimate(value, ratio(inside, drawn_sizes[:, group]), held_by=int(held_by[group])))
    return estimates


def shuffled_group_purity(counts: Counts, *, draws: int = DRAWS, seed: int = 0) -> tuple[Values, Values]:
    """(K,) mean and 97.5 % quantile of each group's purity, NaN without tokens, when the assignments are permuted.

    A permuted group is a draw of as many tokens without replacement, so its class counts, of (K, C) `counts`, are drawn
    directly from their multivariate hypergeometric distribution.
    """
    generator = np.random.default_rng(seed)
    sizes, classes = counts.sum(axis=1), counts.sum(axis=0)
    mean, high = np.full(len(sizes), np.nan), np.full(len(sizes), np.nan)
    for group, size in enumerate(sizes.tolist()):
        if size:
            drawn = generator.multivariate_hypergeometric(classes, size, size=draws, method="marginals")
            values = drawn.max(axis=1) / size
            mean[group], high[group] = values.mean(), percentile_ends(values)[1]
    return mean, high


@dataclass(frozen=True, slots=True)
class StandingOut:
    """How far V pieces stand out in K groups of a layer, all (K, V)."""

    z: NDArray[np.float64]  # log-odds with an informative prior, in standard errors
    p_values: NDArray[np.float64]  # two-sided of z
    q_values: NDArray[np.float64]  # corrected over all pieces and groups
    strong: NDArray[np.float64]  # z above 0 with `LEAST_USES` uses or more and a q-value of at most `MOST_Q`, else 0


def standing_out(uses: NDArray[np.int64]) -> StandingOut:
    """Which of V pieces stand out in which of K groups, by (K, V) uses; the prior weighs as a group of even size."""
    z = log_odds(uses, prior_size=uses.sum() / uses.shape[0])
    p_values = two_sided_p_values(z)
    q_values = corrected_p_values(p_values)
    strong = np.where((uses >= LEAST_USES) & (z > 0) & (q_values <= MOST_Q), z, 0.0)
    return StandingOut(z, p_values, q_values, strong)


def characteristic_table(sample: Sample) -> pa.Table:
    """The most characteristic and the most frequent pieces of every group, by `kind`.

    `z` is in standard errors, `p_value` two-sided of z, `q_value` corrected over all pieces and groups of the layer.
    """
    rows: list[dict[str, Any]] = []
    shape = (sample.num_groups, len(sample.pieces))
    everywhere = np.bincount(sample.piece, minlength=shape[1])
    for place, layer in enumerate(sample.layers):
        uses = contingency(sample.focus.tops[place], sample.piece, shape)
        found = standing_out(uses)
        for group in range(sample.num_groups):
            here = uses[group]
            for kind, order in (
                ("characteristic", strongest(found.strong[group], CHARACTERISTIC)),
                ("frequent", strongest(here, FREQUENT)),
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
                        "z": float(found.z[group, piece]),
                        "p_value": float(found.p_values[group, piece]),
                        "q_value": float(found.q_values[group, piece]),
                    }
                    for rank, piece in enumerate(order)
                ]
    schema = schema_of(
        "layer:int32 group:string kind:string rank:int32 piece:string uses:int64 uses_in_text:int64 z p_value q_value"
    )
    return pa.Table.from_pylist(rows, schema=schema)


def strongest(scores: NDArray[Any], limit: int) -> list[int]:
    """Places of the largest scores above 0, largest first."""
    order = np.argsort(-scores, kind="stable")[:limit]
    return [int(place) for place in order if scores[place] > 0]


def categories_table(sample: Sample) -> pa.Table:
    """Share of every category in every group, and its share in the text.

    `low` and `high` are a bootstrap interval over units; `z` is the distance from what permuted assignments give
    (hypergeometric), in its standard deviations; `p_value` is two-sided and exact, from that distribution; `q_value` is
    corrected over the groups and categories of the layer and scheme that have tokens. `random` is the share in the
    random group with the largest overlap.
    """
    resampler = Resampler(sample.units, resamples=300)
    parts = [
        _layer_categories(sample, place, layer, name, resampler)
        for place, layer in enumerate(sample.layers)
        for name in sample.schemes
    ]
    schema = schema_of(
        "layer:int32 group:string scheme:string category:string tokens:int64 group_tokens:int64 share low high "
        "share_of_text lift z p_value q_value random units:int64 unit:string"
    )
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
    """Ends of the intervals of (K, C) shares from (R, K, C) replicates; NaN for a group in one unit, or mostly lost."""
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
