"""Everything that is measured of one layer under one set of centroids, each with its resamples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import Part, chance_beyond
from focus_explorer.statistics.groups import group_purity_estimates
from focus_explorer.statistics.resample import Estimate, Resampler, Values, held, mean_of, ratio
from focus_explorer.statistics.sample import Groups, Sample
from focus_runtime.mask.distances import shuffled_sharing
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.contingency import balance, contingency, dominance, information, purity

Ints = NDArray[np.int64]
TABLE_ENTRIES = 1 << 24  # entries of the running counts held at once

LEAST_USES = 5  # of a token type, for its stability
INFORMATION = ("nmi", "homogeneity", "completeness", "v_measure")


@dataclass(frozen=True, slots=True)
class Bins:
    """B ranges of distances, none on both sides of a window or a sliding window: (B,) first and last distance."""

    first: Ints
    last: Ints


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Causal pairs by unit and distance, (U, B) each."""

    pairs: Values  # all of them
    ruled: Values  # those that window and sinks keep
    kept: Values  # those the mask keeps
    undecided: Values  # those in the layer's reach that the groups decide
    sharing: float  # probability that two tokens share a group when assignments are permuted; mean over heads
    expected: Values | None = None  # pairs kept then, where heads differ; else they follow from the others

    def by_chance(self) -> Values:
        """(U, B) pairs that permuted assignments keep."""
        return self.ruled + self.undecided * self.sharing if self.expected is None else self.expected


def mean_pairs(counts: Sequence[PairCounts], weights: Sequence[int]) -> PairCounts:
    """Pairs of a layer whose heads differ, mean over heads; those of a single part as they are."""
    if len(counts) == 1:
        return counts[0]

    def mean(values: Sequence[Values | float]) -> Values:
        return np.asarray(np.average(np.asarray(values), axis=0, weights=weights))

    return PairCounts(
        counts[0].pairs,
        mean([one.ruled for one in counts]),
        mean([one.kept for one in counts]),
        mean([one.undecided for one in counts]),
        float(mean([one.sharing for one in counts])),
        mean([one.by_chance() for one in counts]),
    )


def count_pairs(membership: Ints, starts: Ints, bins: Bins, rule: PairRule, resampler: Resampler) -> PairCounts:
    """Count one layer's pairs, exactly; `starts` is (T,) where each token's document begins."""
    place = np.arange(membership.size)
    farthest, near = rule.farthest(place.size), rule.near(place - starts)
    pairs, local, sinks = _by_rule(place, starts, near, bins, rule, resampler)
    in_reach = bins.first <= farthest
    kept = local + np.where(in_reach, _shared_far(membership, starts, near, bins, resampler), 0.0)
    for sink in range(rule.num_sinks):
        key = starts + sink
        distance = place - key
        far = (distance > near) & (distance <= farthest)
        alone = far & ((membership & membership[np.minimum(key, place)]) == 0)
        cell = np.searchsorted(bins.first, np.maximum(distance, 0), side="right") - 1
        kept += resampler.tally(cell, bins.first.size, alone.astype(np.float64))
    undecided = np.where(in_reach, pairs - local - sinks, 0.0)
    return PairCounts(pairs, local + sinks, kept, undecided, shuffled_sharing(membership))


def _by_rule(
    place: Ints, starts: Ints, near: Ints, bins: Bins, rule: PairRule, resampler: Resampler
) -> tuple[Values, Values, Values]:
    """(U, B) all pairs, those within the window, and those with a sink beyond it."""
    zero = np.zeros_like(place)
    pairs, local, far_sinks = np.zeros((3, resampler.bins, bins.first.size))

    def tally(counts: Ints) -> Values:
        return resampler.tally(zero, 1, np.clip(counts, 0, None).astype(np.float64))[:, 0]

    back, farthest = place - starts, rule.farthest(place.size)
    for number, (first, last) in enumerate(zip(bins.first.tolist(), bins.last.tolist(), strict=True)):
        here = np.minimum(back, last)
        pairs[:, number] = tally(here - first + 1)
        local[:, number] = tally(np.minimum(here, near) - first + 1)
        if first <= farthest:  # sinks lie at distances back - s + 1 to back
            nearest = np.maximum(np.maximum(back - rule.num_sinks, near) + 1, first)
            far_sinks[:, number] = tally(here - nearest + 1)
    return pairs, local, far_sinks


def _shared_far(membership: Ints, starts: Ints, near: Ints, bins: Bins, resampler: Resampler) -> Values:
    """(U, B) pairs that share a group, beyond the window."""
    signatures, code = np.unique(membership, return_inverse=True)
    meet = (signatures[:, None] & signatures[None, :]) != 0
    shared = np.zeros((resampler.bins, bins.first.size))
    step = max(1, TABLE_ENTRIES // (membership.size + 1))
    for start in range(0, signatures.size, step):
        rows = meet[start : start + step]
        table = np.zeros((rows.shape[0], membership.size + 1), dtype=np.int32)
        np.cumsum(rows[:, code], axis=1, dtype=np.int32, out=table[:, 1:])
        flat = table.ravel()
        queries = np.flatnonzero((code >= start) & (code < start + step))
        base = (code[queries] - start) * table.shape[1]
        units, begin = resampler.of_token[queries], starts[queries]
        for number, (first, last) in enumerate(zip(bins.first.tolist(), bins.last.tolist(), strict=True)):
            high = np.maximum(queries - np.maximum(first, near[queries] + 1) + 1, begin)
            low = np.minimum(np.maximum(queries - last, begin), high)
            counts = flat[base + high] - flat[base + low]
            shared[:, number] += np.bincount(units, counts, minlength=resampler.bins)
    return shared


@dataclass(slots=True)
class Measured:
    """One layer, K groups.

    Attributes:
        pairs: mean over heads.
        sharing: by part, the probability that two tokens share a group once groups are permuted over the tokens.
        layer: name of a statistic, with ":scheme" where it has one -> estimate.
        group: the same for groups, K estimates each.
        counts: scheme -> (K, C) tokens by group and category.
        leading: scheme -> (K,) commonest category of each group.
        sizes: (K,) tokens.
        tokens: statistic -> tokens or pairs in its denominator, where these are not all tokens.
        chance: statistic of pairs or attention -> its exact expectation under permuted groups.
        window_mass: share of full attention on window and sinks.
        by_type: (V', K) uses of the token types that are used often enough, by group.
    """

    pairs: PairCounts
    sharing: list[float]
    layer: dict[str, Estimate] = field(default_factory=dict)
    group: dict[str, list[Estimate]] = field(default_factory=dict)
    counts: dict[str, Values] = field(default_factory=dict)
    leading: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    sizes: Values = field(default_factory=lambda: np.zeros(0))
    tokens: dict[str, int] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    by_type: Values = field(default_factory=lambda: np.zeros((0, 0)))
    window_mass: float | None = None


def measure_layer(
    sample: Sample,
    groups: Groups,
    place: int,
    resampler: Resampler,
    bins: Bins,
    *,
    centroids: str,
    leading: dict[str, NDArray[np.int64]] | None = None,
) -> Measured:
    """Measure the layer at a place in `sample.layers`.

    `leading`: categories whose share is measured in each group. None: the group's own commonest.
    """
    parts, top = sample.parts[place], groups.tops[place].astype(np.int64)
    by_part = [count_pairs(groups.executed(place, part), sample.starts, bins, part.rule, resampler) for part in parts]
    pairs = mean_pairs(by_part, [part.weight for part in parts])
    measured = Measured(pairs, [own.sharing for own in by_part])
    _sizes(measured, sample, groups, place, top, resampler)
    for name in sample.schemes:
        _categories(measured, sample, name, top, resampler, None if leading is None else leading[name])
    _stability(measured, sample, top, resampler)
    _pairs(measured, by_part, parts, resampler)
    _mass(measured, sample, place, centroids, resampler)
    return measured


def _sizes(
    measured: Measured, sample: Sample, groups: Groups, place: int, top: NDArray[np.int64], resampler: Resampler
) -> None:
    count = sample.num_groups
    by_unit = resampler.tally(top, count)
    drawn, measured.sizes, held_by = resampler.draw(by_unit), by_unit.sum(axis=0), held(by_unit)
    share = ratio(drawn, drawn.sum(axis=1, keepdims=True))
    sizes, total = measured.sizes, measured.sizes.sum()
    measured.group["share"] = [Estimate(float(sizes[g] / total), share[:, g]) for g in range(count)]
    measured.layer["dominance"] = Estimate(float(dominance(sizes)), dominance(drawn), 1 / count)
    measured.layer["balance"] = Estimate(float(balance(sizes)), balance(drawn))
    for name, values, most in (
        ("confidence", groups.confidence[place], 1.0),
        ("entropy", groups.entropy[place], float(np.log(max(count, 2)))),
    ):
        sums = resampler.tally(top, count, values.astype(np.float64))
        drawn_sums = resampler.draw(sums)
        means, everywhere = ratio(drawn_sums, drawn), ratio(drawn_sums.sum(axis=1), drawn.sum(axis=1))
        own = ratio(sums.sum(axis=0), sizes)
        measured.group[name] = [Estimate(float(own[g]), means[:, g], 0.0, most, int(held_by[g])) for g in range(count)]
        measured.layer[name] = Estimate(float(sums.sum() / total), everywhere, 0.0, most)


def _categories(
    measured: Measured,
    sample: Sample,
    name: str,
    top: NDArray[np.int64],
    resampler: Resampler,
    leading: NDArray[np.int64] | None,
) -> None:
    scheme, count = sample.schemes[name], sample.num_groups
    width = len(scheme.names)
    by_unit = resampler.tally(top * width + scheme.codes, count * width)
    counts = by_unit.sum(axis=0).reshape(count, width)
    used = np.flatnonzero(counts.sum(axis=0))  # absent categories change nothing
    drawn = resampler.draw(by_unit.reshape(-1, count, width)[:, :, used].reshape(len(by_unit), -1))
    drawn = drawn.reshape(-1, count, used.size)
    measured.counts[name] = counts
    best = counts.argmax(axis=1) if leading is None else leading
    measured.leading[name] = best
    held_by = held(by_unit.reshape(-1, count, width).sum(axis=2))
    measured.group[f"purity:{name}"] = group_purity_estimates(counts, drawn, used, best, held_by)
    measured.layer[f"purity:{name}"] = Estimate(float(purity(counts)), purity(drawn))
    estimates, replicates = information(counts), information(drawn)
    for kind in INFORMATION:
        measured.layer[f"{kind}:{name}"] = Estimate(float(estimates[kind]), replicates[kind])


def _stability(measured: Measured, sample: Sample, top: NDArray[np.int64], resampler: Resampler) -> None:
    """Share of uses of a token type that lie in the group most of its uses lie in, over types used often enough."""
    types, count = len(sample.pieces), sample.num_groups
    table = contingency(sample.piece, top, (types, count))
    often = table.sum(axis=1) >= LEAST_USES
    measured.by_type = table[often].astype(np.float64)
    eligible = often[sample.piece]
    if not eligible.any():
        return
    same = eligible & (table.argmax(axis=1)[sample.piece] == top)
    sums = resampler.tally(np.zeros_like(top), 1, same.astype(np.float64))
    of = resampler.tally(np.zeros_like(top), 1, eligible.astype(np.float64))
    drawn = ratio(resampler.draw(sums)[:, 0], resampler.draw(of)[:, 0])
    measured.layer["stability"] = Estimate(float(same.sum() / eligible.sum()), drawn, held_by=int(held(of)[0]))
    measured.tokens["stability"] = int(eligible.sum())


def _pairs(measured: Measured, by_part: list[PairCounts], parts: Sequence[Part], resampler: Resampler) -> None:
    """Pairs kept, mean over heads; of the distant ones over the heads that have some."""
    kept, pairs = measured.pairs.kept.sum(axis=1), measured.pairs.pairs.sum(axis=1)
    measured.layer["pairs_kept"] = quotient(resampler, kept, pairs)
    measured.chance["pairs_kept"] = float(measured.pairs.by_chance().sum() / pairs.sum())
    measured.tokens["pairs_kept"] = int(pairs.sum())
    having = [(own, part.weight) for own, part in zip(by_part, parts, strict=True) if own.undecided.sum() > 0]
    if having:
        weights = [weight for _, weight in having]
        sums = [((own.kept - own.ruled).sum(axis=1), own.undecided.sum(axis=1)) for own, _ in having]
        measured.layer["distant_pairs_kept"] = mean_of([quotient(resampler, *both) for both in sums], weights)
        measured.chance["distant_pairs_kept"] = float(np.average([own.sharing for own, _ in having], weights=weights))
        decided = np.average([own.undecided.sum() for own, _ in having], weights=weights)
        measured.tokens["distant_pairs_kept"] = round(float(decided))


def quotient(resampler: Resampler, numerator: Values, denominator: Values) -> Estimate:
    """Ratio of two sums over U units, scaled first: sums of pairs outgrow what 32 bits count exactly."""
    scale = max(float(denominator.max()), 1.0)
    drawn = resampler.draw(np.stack([numerator, denominator], axis=1) / scale)
    total = denominator.sum()
    value = float(numerator.sum() / total) if total else float("nan")
    return Estimate(value, ratio(drawn[:, 0], drawn[:, 1]), held_by=int(held(denominator)))


def _mass(measured: Measured, sample: Sample, place: int, centroids: str, resampler: Resampler) -> None:
    if centroids not in sample.mass:
        return
    mass, parts = sample.mass[centroids], sample.parts[place]
    shares = mass.shares[place]
    zero = np.zeros(len(shares), dtype=np.int64)

    def summed(values: NDArray[np.float64]) -> Values:
        return resampler.tally(zero, 1, values)[:, 0]

    local, sinks, grouped, dropped = shares.T
    measured.window_mass = float((local + sinks).mean())
    measured.layer["mass_kept"] = quotient(resampler, summed(1.0 - dropped), summed(np.ones(len(shares))))
    measured.tokens["mass_kept"] = len(shares)
    far = grouped + dropped
    chance = chance_beyond(measured.sharing, () if mass.far is None else mass.far[place].tolist(), parts)
    measured.chance["mass_kept"] = float((local + sinks + far * chance).mean())
    if far.sum() > 0:
        measured.layer["distant_mass_kept"] = quotient(resampler, summed(grouped), summed(far))
        measured.chance["distant_mass_kept"] = chance
        measured.tokens["distant_mass_kept"] = len(shares)
