"""A sample -> rows of statistics: every layer and its baselines, then the mean over layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.statistics.agreement import align
from focus_explorer.statistics.layer_measures import Bins, Measured, measure_layer
from focus_explorer.statistics.resample import Estimate, Resampler, corrected_p_values, mean_of
from focus_explorer.statistics.rows import StatisticRow, caution, to_table
from focus_explorer.statistics.sample import Sample
from focus_runtime.mask.distances import distance_bins
from focus_runtime.mask.rule import group_label
from focus_runtime.measure.contingency import group_purity, information, purity, shuffled_tables
from focus_runtime.measure.intervals import percentile_ends

STABILITY_SHUFFLES = 99
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Statistic:
    """The words and rules for a statistic of a layer; `measure_layer` computes it."""

    title: str
    meaning: str  # what it is, for a reader who has never heard of it
    family: str  # heading that it is listed under, in the order of declaration
    of: str = "tokens"  # what its denominator counts
    without: float | None = None  # its value without groups, if that is the same for every layer
    compared: bool = False  # also list its difference from random centroids
    decimals: int | None = None  # digits of a plain number. None: a share, in per cent
    reported: bool = False  # include it in reports


POSITIONS = "query positions, mean over heads"
SIZES, KINDS, WORDS, PAIRS = "Sizes and certainty", "Groups and grammar", "Words over contexts", "Pairs and attention"
STATISTICS = {
    "dominance": Statistic(
        "Largest group",
        "The share of tokens in a layer's largest group. 1/K would be even; near 100 % the groups have collapsed.",
        SIZES,
        without=1.0,
        compared=True,
        reported=True,
    ),
    "balance": Statistic(
        "Balance of sizes",
        "The entropy of the group sizes divided by its largest possible value: 100 % when all groups are equally "
        "large, 0 % when one has every token.",
        SIZES,
        without=0.0,
    ),
    "confidence": Statistic(
        "Confidence",
        "The probability a token gave to its own group, mean over tokens.",
        SIZES,
        without=1.0,
    ),
    "entropy": Statistic(
        "Assignment entropy",
        "The entropy of a token's probabilities over the groups, mean over tokens, in nats: 0 when each token is "
        "certain of its group.",
        SIZES,
        without=0.0,
        decimals=2,
    ),
    "purity": Statistic(
        "Purity",
        "The share of tokens whose category is the commonest one of their group. It rises with the number of groups"
        " and with the commonest category, so read it with its baselines.",
        KINDS,
        compared=True,
        reported=True,
    ),
    "nmi": Statistic(
        "Mutual information (NMI)",
        "Normalised mutual information of groups and categories: 0 when a group says nothing about the category of "
        "a token, 1 when it says everything.",
        KINDS,
        without=0.0,
        compared=True,
        decimals=3,
        reported=True,
    ),
    "v_measure": Statistic(
        "V-measure",
        "The harmonic mean of homogeneity and completeness.",
        KINDS,
        without=0.0,
        compared=True,
        decimals=3,
    ),
    "homogeneity": Statistic(
        "Homogeneity",
        "How far knowing the group tells the category: 1 when every group holds one category only.",
        KINDS,
        without=0.0,
        decimals=3,
    ),
    "completeness": Statistic(
        "Completeness",
        "How far knowing the category tells the group: 1 when every category lies in one group only.",
        KINDS,
        without=1.0,
        decimals=3,
    ),
    "stability": Statistic(
        "Same word, same group",
        "For token types used at least five times: the share of their uses that lie in the group most of their uses"
        " lie in. 100 % means that the context never matters.",
        WORDS,
        of="tokens whose piece occurs at least 5 times",
        without=1.0,
        compared=True,
        reported=True,
    ),
    "pairs_kept": Statistic(
        "Pairs kept",
        "The share of causal token pairs the mask computes.",
        PAIRS,
        of="causal pairs",
        compared=True,
    ),
    "distant_pairs_kept": Statistic(
        "Distant pairs kept",
        "The same for the pairs that window and sinks would drop: what the groups alone keep, and heads with full "
        "attention, which keep all of theirs.",
        PAIRS,
        of="causal pairs beyond window and sinks",
        without=0.0,
        compared=True,
    ),
    "mass_kept": Statistic(
        "Attention kept",
        "The share of full attention's probability that lies on pairs the mask keeps, mean over query tokens and "
        "heads.",
        PAIRS,
        of=POSITIONS,
        compared=True,
    ),
    "distant_mass_kept": Statistic(
        "Distant attention kept",
        "The same for the attention beyond window and sinks: what the groups alone keep of it, and heads with full "
        "attention, which keep all of theirs.",
        PAIRS,
        of=POSITIONS,
        without=0.0,
        compared=True,
    ),
    "share": Statistic(
        "Share of tokens",
        "The share of all tokens that lie in this group.",
        SIZES,
    ),
}


@dataclass(slots=True)
class Layer:
    """What was measured of one layer, its baselines, and which random group each group is matched with (-1: none)."""

    number: int
    focus: Measured
    random: Measured | None
    partner: list[int]
    shuffled: dict[str, NDArray[np.float64]]
    shuffled_groups: dict[str, NDArray[np.float64]]


def measure(
    sample: Sample, *, resamples: int = 1000, seed: int = 0, progress: Progress = lambda done, total: None
) -> tuple[list[Layer], Resampler, Bins]:
    """Measure every layer of a sample."""
    resampler = Resampler(sample.units, resamples=resamples, seed=seed)
    longest = int((np.arange(sample.num_tokens) - sample.starts).max()) + 1
    bins = Bins(*distance_bins(longest, [part.rule for parts in sample.parts for part in parts]))
    layers = []
    for place in range(len(sample.layers)):
        layers.append(_layer(sample, place, resampler, bins, seed))
        progress(place + 1, len(sample.layers))
    return layers, resampler, bins


def describe(sample: Sample, layers: list[Layer], resampler: Resampler) -> pa.Table:
    """Rows of `rows.SCHEMA` for groups, layers and the run, with corrected p-values and warnings."""
    made, rows = _Rows(sample, resampler), []
    for layer in layers:
        rows += made.of_groups(layer)
        rows += made.of_layer(layer)
    rows += made.of_run(layers)
    return to_table(_corrected(rows))


def _layer(sample: Sample, place: int, resampler: Resampler, bins: Bins, seed: int) -> Layer:
    focus = measure_layer(sample, sample.focus, place, resampler, bins, centroids="focus")
    random, partner = None, [-1] * sample.num_groups
    if sample.random is not None:
        count = sample.num_groups
        matched = align(sample.random.tops[place], sample.focus.tops[place], count, count)
        partner = matched.names
        leading = {name: _moved(best, partner) for name, best in focus.leading.items()}
        random = measure_layer(sample, sample.random, place, resampler, bins, centroids="random", leading=leading)
    return Layer(sample.layers[place], focus, random, partner, *_shuffle(sample, focus, place, seed))


def _moved(best: NDArray[np.int64], partner: list[int]) -> NDArray[np.int64]:
    """The commonest category of each group, for the random groups they are matched with."""
    moved = best.copy()
    for group, other in enumerate(partner):
        if other >= 0:
            moved[other] = best[group]
    return moved


def _shuffle(
    sample: Sample, focus: Measured, place: int, seed: int
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """Draws of every statistic that shuffling changes; an exact expectation is a single draw."""
    layers: dict[str, NDArray[np.float64]] = {}
    groups: dict[str, NDArray[np.float64]] = {}
    for name, counts in focus.counts.items():
        tables = shuffled_tables(counts, seed=seed + place)
        layers[f"purity:{name}"] = purity(tables)
        for kind, values in information(tables).items():
            layers[f"{kind}:{name}"] = values
        groups[f"purity:{name}"] = group_purity(tables)
    if "stability" in focus.layer:
        tables = shuffled_tables(focus.by_type, draws=STABILITY_SHUFFLES, seed=seed + place)
        layers["stability"] = tables.max(axis=2).sum(axis=1) / focus.by_type.sum()
    return layers | {name: np.array([value]) for name, value in focus.chance.items()}, groups


@dataclass(frozen=True, slots=True)
class _Rows:
    """Makes rows of what was measured of a sample."""

    sample: Sample
    resampler: Resampler

    def of_groups(self, layer: Layer) -> list[StatisticRow]:
        rows, focus = [], layer.focus
        base = {name: counts.sum(axis=0) / counts.sum() for name, counts in focus.counts.items()}
        for name, estimates in focus.group.items():
            statistic, _, scheme = name.partition(":")
            for group, estimate in enumerate(estimates):
                size = int(focus.sizes[group])
                best = int(focus.leading[scheme][group]) if scheme else -1
                row = StatisticRow(
                    scope="group",
                    layer=layer.number,
                    group=group_label(group),
                    statistic=statistic,
                    category=f"{scheme}:{self.sample.schemes[scheme].names[best]}" if scheme else "",
                    value=estimate.value,
                    count=self.sample.num_tokens if statistic == "share" else size,
                    denominator="tokens" if statistic == "share" else "tokens of the group",
                    units=self.resampler.count,
                    unit=self.sample.unit,
                    window_only=float(base[scheme][best]) if scheme else None,
                )
                random = None
                if layer.random is not None and layer.partner[group] >= 0:
                    random = layer.random.group[name][layer.partner[group]]
                draws = layer.shuffled_groups[name][:, group] if scheme else None
                if statistic == "share":
                    draws = np.array([estimate.value])  # shuffling keeps sizes
                rows.append(self._with_baselines(row, estimate, random, draws, size))
        return rows

    def of_layer(self, layer: Layer) -> list[StatisticRow]:
        rows = []
        for name, estimate in layer.focus.layer.items():
            random = layer.random.layer.get(name) if layer.random is not None else None
            draws = layer.shuffled.get(name, np.array([estimate.value]))  # sizes and probabilities survive shuffling
            row = self._row("layer", layer.number, name, estimate, layer.focus.tokens, _without(layer, name))
            rows += self._compared(row, estimate, random, draws)
        return rows

    def of_run(self, layers: list[Layer]) -> list[StatisticRow]:
        rows = []
        for name in dict.fromkeys(name for layer in layers for name in layer.focus.layer):
            having = [layer for layer in layers if name in layer.focus.layer]
            estimate = mean_of([layer.focus.layer[name] for layer in having])
            others = [layer.random.layer[name] for layer in having if layer.random and name in layer.random.layer]
            random = mean_of(others) if len(others) == len(having) else None
            shuffles = [layer.shuffled.get(name, np.array([layer.focus.layer[name].value])) for layer in having]
            fewest = min(draws.size for draws in shuffles)
            draws = np.sort([one[:fewest] for one in shuffles], axis=1).mean(axis=0)  # as if all layers moved together
            without = [_without(layer, name) for layer in having]
            known = [value for value in without if value is not None]
            alone = float(np.mean(known)) if len(known) == len(without) else None
            row = self._row("run", None, name, estimate, _mean_tokens(having), alone)
            rows += self._compared(row, estimate, random, draws)
        return rows

    def _row(
        self,
        scope: str,
        number: int | None,
        name: str,
        estimate: Estimate,
        tokens: dict[str, int],
        window_only: float | None,
    ) -> StatisticRow:
        statistic, _, scheme = name.partition(":")
        return StatisticRow(
            scope=scope,
            layer=number,
            statistic=statistic,
            category=scheme,
            value=estimate.value,
            count=tokens.get(statistic, self.sample.num_tokens),
            denominator=STATISTICS[statistic].of + (", mean over layers" if scope == "run" else ""),
            units=self.resampler.count,
            unit=self.sample.unit,
            window_only=window_only,
        )

    def _compared(
        self, row: StatisticRow, estimate: Estimate, random: Estimate | None, draws: NDArray[np.float64]
    ) -> list[StatisticRow]:
        """The row, and another of the difference from random centroids."""
        rows = [self._with_baselines(row, estimate, random, draws, row.count)]
        if random is not None and STATISTICS[row.statistic].compared:
            gain = estimate.minus(random)
            difference = replace(row, statistic=f"{row.statistic}_minus_random", value=gain.value, window_only=None)
            rows.append(self._with_baselines(difference, gain, None, None, row.count))
        return rows

    def _with_baselines(
        self,
        row: StatisticRow,
        estimate: Estimate,
        random: Estimate | None,
        draws: NDArray[np.float64] | None,
        size: int,
    ) -> StatisticRow:
        """The row with interval, baselines, p-value and warning."""
        low, high = estimate.interval(self.resampler.count)
        row = replace(row, low=low, high=high)
        if random is not None:
            ends = random.interval(self.resampler.count)
            row = replace(row, random=random.value, random_low=ends[0], random_high=ends[1])
        if draws is not None and draws.size == 1:
            row = replace(row, shuffled=float(draws[0]))
        elif draws is not None and np.isfinite(estimate.value):
            least, most = percentile_ends(draws).tolist()
            p_value = (1 + int((draws >= estimate.value - 1e-12).sum())) / (1 + draws.size)
            mean = float(draws.mean())
            row = replace(row, shuffled=mean, shuffled_low=least, shuffled_high=most, p_value=p_value)
        return replace(row, warning=caution(row, size, estimate.units(self.resampler.count)))


def _mean_tokens(layers: list[Layer]) -> dict[str, int]:
    """Tokens or pairs in each statistic's denominator, mean over the layers that have it."""
    by_name: dict[str, list[int]] = {}
    for layer in layers:
        for name, count in layer.focus.tokens.items():
            by_name.setdefault(name, []).append(count)
    return {name: round(float(np.mean(counts))) for name, counts in by_name.items()}


def _without(layer: Layer, name: str) -> float | None:
    """The statistic without groups: all tokens in one, pairs of window and sinks alone."""
    statistic, _, scheme = name.partition(":")
    if statistic == "purity":
        counts = layer.focus.counts[scheme].sum(axis=0)
        return float(counts.max() / counts.sum())
    if statistic == "mass_kept":
        return layer.focus.window_mass
    if statistic == "pairs_kept":
        return float(layer.focus.pairs.ruled.sum() / layer.focus.pairs.pairs.sum())
    return STATISTICS[statistic].without


def _corrected(rows: list[StatisticRow]) -> list[StatisticRow]:
    """q-values over all rows of one scope, statistic and set of categories (Benjamini and Hochberg 1995)."""
    families: dict[tuple[str, str, str], list[int]] = {}
    for place, row in enumerate(rows):
        if row.p_value is not None:
            families.setdefault((row.scope, row.statistic, row.category.partition(":")[0]), []).append(place)
    corrected = list(rows)
    for places in families.values():
        q_values = corrected_p_values([p for place in places if (p := rows[place].p_value) is not None])
        for place, value in zip(places, q_values, strict=True):
            corrected[place] = replace(rows[place], q_value=float(value))
    return corrected
