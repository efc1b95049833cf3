"""Intervals and tests against enumeration, scipy and simulated data of known truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from focus_runtime.errors import InputError
from focus_runtime.measure.intervals import (
    EXACT_UP_TO,
    Interval,
    bootstrap_test,
    mcnemar_test,
    mean_interval,
    moving_block_interval,
    recentred_interval,
    resampled_means,
    sign_flip_test,
    student_widening,
    wilcoxon_test,
)


def test_replicates_have_the_distribution_of_all_resamples(fresh_seed):
    """Against every one of the 5^5 ways to draw 5 units: mean, spread and quantiles."""
    generator = np.random.default_rng(fresh_seed)
    values, weight = generator.normal(size=5), generator.uniform(0.5, 2, size=5)
    weight /= weight.mean()
    everything = np.array(list(itertools.product(range(5), repeat=5)))
    exact = (values * weight)[everything].sum(axis=1) / weight[everything].sum(axis=1)
    resampled = resampled_means(values[None], weight, 200_000, 1)
    spread = exact.std()
    assert resampled.mean() == pytest.approx(exact.mean(), abs=0.02 * spread)
    assert resampled.std() == pytest.approx(spread, rel=0.02)
    assert stats.ks_2samp(resampled, exact).statistic < 0.04


def test_with_few_units_it_is_the_t_interval(fresh_seed):
    values = np.random.default_rng(fresh_seed).normal(size=5)
    interval = mean_interval(values)
    expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert (interval.low, interval.high) == pytest.approx(expected)
    assert interval.value == pytest.approx(values.mean())


def test_of_many_symmetric_units_it_agrees_with_t_and_with_scipys_bootstrap():
    values = np.random.default_rng(4).normal(size=400)
    interval = mean_interval(values)
    half = stats.sem(values) * stats.t.ppf(0.975, 399)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)
    other = stats.bootstrap((values,), np.mean, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    assert (interval.low, interval.high) == pytest.approx((other.low, other.high), abs=0.1 * half)


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "truth", "least"), [("normal", 0.0, 0.92), ("lognormal", math.exp(0.125), 0.90)])
@pytest.mark.parametrize("units", [6, 12, pytest.param(40, marks=pytest.mark.long)])
def test_coverage_over_units(draw, truth, least, units):
    """About 95 of 100 intervals hold the truth, with few units and with skewed ones too; 0.92 is 2.8 deviations off."""
    generator = np.random.default_rng(11)
    covered = 0
    for trial in range(400):
        values = generator.normal(size=units) if draw == "normal" else generator.lognormal(0, 0.5, size=units)
        interval = mean_interval(values, resamples=800, seed=trial)
        covered += interval.low <= truth <= interval.high
    assert least <= covered / 400 <= 0.99


@pytest.mark.slow
def test_coverage_over_three_seeds_and_units():
    """Resampling units alone misses the truth far too often where seeds differ."""
    generator = np.random.default_rng(12)
    covered = alone = 0
    for trial in range(400):
        table = generator.normal(0, 1, size=(3, 1)) + generator.normal(0, 1, size=20) + generator.normal(size=(3, 20))
        both, units = mean_interval(table, resamples=400, seed=trial), mean_interval(table.mean(axis=0), resamples=400)
        covered += both.low <= 0 <= both.high
        alone += units.low <= 0 <= units.high
    assert covered / 400 >= 0.92
    assert alone / 400 < 0.75


def test_weights_are_those_of_tokens(fresh_seed):
    generator = np.random.default_rng(fresh_seed)
    values, tokens = generator.normal(size=30), generator.integers(5, 100, size=30)
    assert mean_interval(values, tokens).value == pytest.approx(np.average(values, weights=tokens))
    assert mean_interval(values, np.full(30, 7)) == mean_interval(values)


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(5).exponential(size=50)
    assert mean_interval(values, seed=3) == mean_interval(values, seed=3)
    assert mean_interval(values, seed=3) != mean_interval(values, seed=4)
    long = np.random.default_rng(6).normal(0.2, 1, size=EXACT_UP_TO + 9)
    assert sign_flip_test(long, seed=1) == sign_flip_test(long, seed=1)
    assert bootstrap_test(long, seed=1) == bootstrap_test(long, seed=1)


def test_one_unit_has_no_interval_and_identical_ones_no_width():
    one = mean_interval([2.5]).through(math.exp)
    assert (one.value, one.low, one.high, one.units) == (math.exp(2.5), None, None, 1)
    same = mean_interval([0.1] * 9)
    assert same.low == same.high == same.value == pytest.approx(0.1)
    assert mean_interval(np.zeros((3, 12))).high == 0


@pytest.mark.parametrize("values", [[], [[]], [1.0, math.nan], [math.inf], 3.0, np.zeros((2, 2, 2))])
def test_what_is_no_list_of_numbers_is_refused(values):
    with pytest.raises(InputError):
        mean_interval(values)
    for weights in ([1.0], [1.0, 0.0], [1.0, -1.0]):
        with pytest.raises(InputError, match="weight"):
            mean_interval([1.0, 2.0], weights)


# --- tests


def test_sign_flips_are_exact_on_few_units(fresh_seed):
    values = np.random.default_rng(fresh_seed).normal(0.4, 1, size=9)
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in itertools.product((-1, 1), repeat=9)
    ]
    expected = np.mean([total >= abs(values.sum()) - 1e-9 for total in sums])
    assert sign_flip_test(values) == pytest.approx(expected)
    scipy = stats.permutation_test(
        (values, np.zeros(9)), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_test(values) == pytest.approx(scipy.pvalue)


def test_random_sign_flips_come_near_the_exact_ones(monkeypatch):
    values = np.random.default_rng(8).normal(0.5, 1, size=14)
    exact = sign_flip_test(values)
    monkeypatch.setattr("focus_runtime.measure.intervals.EXACT_UP_TO", 0)
    assert sign_flip_test(values, resamples=40_000) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("units", [10, 30])
def test_p_values_are_uniform_where_there_is_no_difference(units):
    generator = np.random.default_rng(13)
    draws = generator.normal(size=(300, units))
    flips = np.mean([sign_flip_test(row, resamples=400) <= 0.05 for row in draws])
    assert 0.02 <= flips <= 0.09
    resampled = np.mean([bootstrap_test(row, resamples=400) <= 0.05 for row in draws])
    assert 0.02 <= resampled <= 0.14  # known to reject too often with ten units


def test_a_clear_difference_is_found():
    values = np.random.default_rng(9).normal(1, 0.3, size=30)
    assert max(sign_flip_test(values), bootstrap_test(values), wilcoxon_test(values)) < 0.001
    assert sign_flip_test(-values) == pytest.approx(sign_flip_test(values), abs=1e-3)


def test_degenerate_differences():
    assert sign_flip_test([0.7]) == 1.0  # one document proves nothing
    assert bootstrap_test([0.7]) == 1.0
    assert wilcoxon_test([0.7]) == 1.0
    assert sign_flip_test([0.0] * 20) == bootstrap_test([0.0] * 20) == wilcoxon_test([0.0] * 20) == 1.0
    assert sign_flip_test([0.1] * 10) == 2 / 2**10  # equal sums in any order of addition
    assert bootstrap_test([0.1] * 10) < 0.001


def test_wilcoxon_is_scipys(fresh_seed):
    values = np.random.default_rng(fresh_seed).normal(size=25)
    assert wilcoxon_test(values) == stats.wilcoxon(values).pvalue
    assert wilcoxon_test([*values, 0.0]) == stats.wilcoxon(values).pvalue


def test_mcnemar_is_the_binomial_test_on_changed_items(fresh_seed):
    generator = np.random.default_rng(fresh_seed)
    first, second = generator.integers(0, 2, size=(2, 60))
    result = mcnemar_test(first, second)
    lost, gained = int(((first == 1) & (second == 0)).sum()), int(((first == 0) & (second == 1)).sum())
    assert (result.only_first, result.only_second) == (lost, gained)
    assert result.p_value == pytest.approx(stats.binomtest(lost, lost + gained).pvalue)
    assert mcnemar_test(first, first).p_value == 1.0
    assert mcnemar_test([1] * 8, [0] * 8).p_value == 2 / 2**8
    for pair in (([0.5], [1]), ([1, 0], [1])):
        with pytest.raises(InputError, match="zeros and ones"):
            mcnemar_test(*pair)


@pytest.mark.parametrize("count", [4, 50, 128, 400])
def test_a_moving_block_interval_covers_the_mean_about_95_times_in_100(count):
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        _, low, high = moving_block_interval(rng.normal(0.3, 1.0, count), resamples=400, seed=trial)
        hits += low <= 0.3 <= high
    assert 174 <= hits <= 199


def test_a_moving_block_interval_of_dependent_values_is_wider():
    rng = np.random.default_rng(2)
    steps = np.repeat(rng.normal(size=50), 32)
    shuffled = rng.permutation(steps)
    _, low, high = moving_block_interval(steps)
    _, low_s, high_s = moving_block_interval(shuffled)
    assert high - low > 2 * (high_s - low_s)


def test_a_moving_block_interval_of_few_values():
    for count in (2, 3, 5):
        assert moving_block_interval(np.full(count, 0.5)) == (0.5, 0.5, 0.5)
    assert moving_block_interval(np.array([0.5])) == (0.5, None, None)


def test_a_recentred_interval_is_widened_around_the_estimate_and_stays_in_range():
    replicates = np.random.default_rng(4).normal(0.6, 0.05, size=(4000, 1))  # resamples overstate the value
    low, high = recentred_interval(np.array([0.5]), replicates, 20)
    reach = 1.96 * 0.05 * student_widening(20)
    assert (low[0], high[0]) == pytest.approx((0.5 - reach, 0.5 + reach), abs=0.006)
    low, high = recentred_interval(np.array([0.99]), replicates, 20)
    assert high[0] == 1


def test_an_interval_of_a_share_is_kept_within_its_range():
    assert Interval(0.9, 0.7, 1.1, 3).within(0, 1) == Interval(0.9, 0.7, 1, 3)
    assert Interval(0.9, None, None, 1).within(0, 1).high is None
