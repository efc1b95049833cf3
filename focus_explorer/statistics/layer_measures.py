"""Everything that is measured of one layer under one set of centroids, each with its resamples."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import chance_beyond
from focus_explorer.statistics.distances import Bins, PairCounts, count_pairs, mean_pairs
from focus_explorer.statistics.group_purity import group_purity_estimates
from focus_explorer.statistics.resample import Estimate, Resampler, Values, held, mean_of, ratio
from focus_explorer.statistics.sample import Groups, Sample
from focus_runtime.measure.contingency import balance, contingency, dominance, information, purity

LEAST_USES = 5  # of a token type, for its stability
INFORMATION = ("nmi", "homogeneity", "completeness", "v_measure")


@dataclass(slots=True)
class Measured:
    """One layer, K groups.

    Attributes:
        layer: name of a statistic, with ":scheme" where it has one -> estimate.
        group: the same for groups, K estimates each.
        counts: scheme -> (K, C) tokens by group and category.
        leading: scheme -> (K,) commonest category of each group.
        sizes: (K,) tokens.
        tokens: statistic -> tokens or pairs in its denominator, where these are not all tokens.
        pairs: pairs by unit and distance.
        sharing: by part, the probability that two tokens share a group once groups are permuted over the tokens.
        chance: statistic of pairs or attention -> its exact expectation under such groups.
        window_mass: share of full attention on window and sinks.
        by_type: (V', K) uses of the token types that are used often enough, by group.
    """

    layer: dict[str, Estimate] = field(default_factory=dict)
    group: dict[str, list[Estimate]] = field(default_factory=dict)
    counts: dict[str, Values] = field(default_factory=dict)
    leading: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    sizes: Values = field(default_factory=lambda: np.zeros(0))
    tokens: dict[str, int] = field(default_factory=dict)
    pairs: PairCounts | None = None
    sharing: list[float] = field(default_factory=list)
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

    Args:
        sample: of a run or corpus.
        groups: its own or those of random centroids.
        place: index into the layers.
        resampler, bins: of the sample.
        centroids: `focus` or `random`, whose attention mass is looked up.
        leading: categories whose share is taken in each group; the group's own commonest when None.
    """
    measured = Measured()
    top = groups.tops[place].astype(np.int64)
    _sizes(measured, sample, groups, place, top, resampler)
    for name in sample.schemes:
        _categories(measured, sample, name, top, resampler, None if leading is None else leading[name])
    _stability(measured, sample, top, resampler)
    _pairs(measured, sample, groups, place, resampler, bins)
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


def _pairs(measured: Measured, sample: Sample, groups: Groups, place: int, resampler: Resampler, bins: Bins) -> None:
    """Pairs kept, mean over heads; of the distant ones over the heads that have some."""
    parts = sample.parts[place]
    by_part = [count_pairs(groups.executed(place, part), sample.starts, bins, part.rule, resampler) for part in parts]
    counts = measured.pairs = mean_pairs(by_part, [part.weight for part in parts])
    measured.sharing = [own.sharing for own in by_part]
    kept, pairs = counts.kept.sum(axis=1), counts.pairs.sum(axis=1)
    measured.layer["pairs_kept"] = quotient(resampler, kept, pairs)
    measured.chance["pairs_kept"] = float(counts.by_chance().sum() / pairs.sum())
    measured.tokens["pairs_kept"] = int(pairs.sum())
    distant, sharing, weights, decided = [], [], [], []
    for part, own in zip(parts, by_part, strict=True):
        kept, ruled, undecided = (values.sum(axis=1) for values in (own.kept, own.ruled, own.undecided))
        if undecided.sum() > 0:
            distant.append(quotient(resampler, kept - ruled, undecided))
            sharing.append(own.sharing)
            weights.append(part.weight)
            decided.append(float(undecided.sum()))
    if distant:
        measured.layer["distant_pairs_kept"] = mean_of(distant, weights)
        measured.chance["distant_pairs_kept"] = float(np.average(sharing, weights=weights))
        measured.tokens["distant_pairs_kept"] = round(float(np.average(decided, weights=weights)))


def quotient(resampler: Resampler, numerator: Values, denominator: Values) -> Estimate:
    """Ratio of two sums over units.

    Sums of pairs outgrow what 32 bits count exactly, so they are scaled first.

    Args:
        resampler: of U units.
        numerator, denominator: (U,).
    """
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
