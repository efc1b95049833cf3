"""Rows of statistics for made-up samples whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from focus_explorer.data.parts import Part
from focus_explorer.statistics.describe import describe, measure
from focus_explorer.statistics.groups import categories_table
from focus_explorer.statistics.rows import COLUMNS
from focus_explorer.statistics.sample import Sample, Scheme
from focus_runtime.mask.distances import distant_pairs
from focus_runtime.mask.rule import PairRule
from tests.explorer.statistics.conftest import TOKENS, groups


def one(rows, statistic, layer=None, group=None, category=""):
    scope = "group" if group else "run" if layer is None else "layer"
    hits = [
        row
        for row in rows
        if row["scope"] == scope
        and row["statistic"] == statistic
        and row["layer"] == layer
        and row["group"] == group
        and row["category"].startswith(category)
    ]
    assert len(hits) == 1, (statistic, layer, group, len(hits))
    return hits[0]


def unrelated_sample(rng, tops, codes):
    """One layer or several of four groups, six categories and one text, each unrelated to the others."""
    return Sample(
        layers=list(range(len(tops))),
        num_groups=4,
        parts=[(Part(0, (0,), 1, PairRule(5, 2)),)] * len(tops),
        focus=groups(tops, rng),
        random=None,
        pieces=[f" word{n}" for n in range(12)],
        piece=rng.integers(0, 12, codes.size),
        schemes={"pos": Scheme(list("ABCDEF"), codes.astype(np.uint8))},
        units=np.arange(codes.size) // 12,
        unit="sentence",
        starts=np.zeros(codes.size, dtype=np.int64),
    )


def test_groups_that_are_categories_are_found_and_random_groups_are_not(measured):
    rows = measured[0]
    same, unrelated = one(rows, "nmi", 3), one(rows, "nmi", 7)
    assert same["value"] == pytest.approx(1)
    assert same["shuffled"] < 0.05
    assert same["p_value"] == 0.001
    assert unrelated["value"] < 0.05
    assert unrelated["low"] is not None
    gain = one(rows, "nmi_minus_random", 3)
    assert gain["low"] > 0.9
    assert gain["window_only"] is None
    assert one(rows, "stability", 3)["value"] == 1
    assert one(rows, "purity", 3)["window_only"] < 0.4
    means = [one(rows, "purity", layer)["value"] for layer in (3, 7)]
    assert one(rows, "purity")["value"] == pytest.approx(np.mean(means))


def test_every_row_has_its_baselines_denominator_and_unit(measured, sample):
    for row in measured[0]:
        assert list(row) == list(COLUMNS)
        assert row["units"] == 50
        assert row["unit"] == "sentence"
        assert row["denominator"]
        assert row["count"] > 0
        assert row["low"] is None or row["low"] <= row["value"] <= row["high"]
        if not row["statistic"].endswith("_minus_random"):
            assert row["random"] is not None
            assert row["random_low"] is not None
            assert row["shuffled"] is not None or (row["scope"], row["statistic"]) in {
                ("group", "confidence"),
                ("group", "entropy"),
            }
    assert one(measured[0], "confidence")["value"] == pytest.approx(sample.focus.confidence.mean())
    assert one(measured[0], "pairs_kept", 3)["count"] == TOKENS * (TOKENS + 1) // 2


def test_group_rows_count_as_by_hand(measured, sample):
    top, pos = sample.focus.tops[1], sample.schemes["pos"]
    for group in range(4):
        inside = pos.codes[top == group]
        row = one(measured[0], "purity", 7, "ABCD"[group], "pos")
        best = np.bincount(inside, minlength=4).argmax()
        assert row["category"] == f"pos:{pos.names[best]}"
        assert row["count"] == inside.size
        assert row["value"] == pytest.approx((inside == best).mean())
        assert row["window_only"] == pytest.approx((pos.codes == best).mean())
        assert one(measured[0], "share", 7, "ABCD"[group])["value"] == pytest.approx(inside.size / TOKENS)


def test_attention_kept_is_the_share_not_dropped(measured, sample):
    shares = sample.mass["focus"].shares[0]
    row = one(measured[0], "mass_kept", 3)
    assert row["value"] == pytest.approx(1 - shares[:, 3].mean())
    assert row["window_only"] == pytest.approx(shares[:, :2].sum(axis=1).mean())
    far = one(measured[0], "distant_mass_kept", 3)["value"]
    assert far == pytest.approx(shares[:, 2].sum() / shares[:, 2:].sum())


def test_corrected_p_values_are_never_below_the_plain_ones(measured):
    rows = [row for row in measured[0] if row["p_value"] is not None]
    assert rows
    assert all(row["q_value"] >= row["p_value"] - 1e-12 for row in rows)
    insignificant = [row for row in rows if row["p_value"] > 0.05]
    assert all("no more than under shuffled assignments" in row["warning"] for row in insignificant)


def test_a_short_text_is_said_to_tell_nothing(sample):
    few = Sample(**{name: getattr(sample, name) for name in Sample.__slots__} | {"units": np.arange(TOKENS) // 100})
    layers, resampler, _ = measure(few, resamples=50)
    for row in describe(few, layers, resampler).to_pylist():
        assert "6 sentences: too short to tell" in row["warning"]


def test_the_same_sample_gives_the_same_bytes(sample):
    first, second = (describe(sample, *measure(sample, resamples=60)[:2]) for _ in range(2))
    assert first.equals(second)


def test_layers_that_repeat_each_other_are_no_more_evidence_than_one():
    rng = np.random.default_rng(0)
    made = unrelated_sample(rng, np.tile(rng.integers(0, 4, 240), (8, 1)), rng.integers(0, 6, 240))
    layers, resampler, _ = measure(made, resamples=20)
    rows = describe(made, layers, resampler).to_pylist()
    over_layers, alone = one(rows, "nmi"), [one(rows, "nmi", layer) for layer in range(8)]
    assert over_layers["value"] == pytest.approx(alone[0]["value"])
    for name in ("shuffled", "shuffled_low", "shuffled_high", "p_value"):
        assert over_layers[name] == pytest.approx(np.mean([row[name] for row in alone]), rel=0.1, abs=0.02)


def test_the_purity_of_a_group_of_any_tokens_is_rarely_called_more_than_chance():
    p_values = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        made = unrelated_sample(rng, rng.integers(0, 4, (1, 240)), rng.integers(0, 6, 240))
        layers, resampler, _ = measure(made, resamples=2)
        rows = describe(made, layers, resampler).to_pylist()
        p_values += [row["p_value"] for row in rows if row["scope"] == "group" and row["statistic"] == "purity"]
    assert len(p_values) == 80
    assert np.mean(np.array(p_values) <= 0.05) < 0.11


def test_a_group_without_tokens_has_no_purity_and_is_no_comparison():
    rng = np.random.default_rng(0)
    made = unrelated_sample(rng, rng.integers(0, 2, (1, 240)), rng.integers(0, 6, 240))
    layers, resampler, _ = measure(made, resamples=20)
    rows = describe(made, layers, resampler).to_pylist()
    used, empty = ([one(rows, "purity", 0, group, "pos") for group in groups] for groups in ("AB", "CD"))
    for row in empty:
        assert [row[name] for name in ("value", "shuffled", "shuffled_low", "p_value", "q_value")] == [None] * 5
        assert row["warning"] == "no tokens in this group"
    assert min(row["q_value"] for row in used) <= 2 * min(row["p_value"] for row in used)


@pytest.mark.parametrize(("sentences", "warning"), [(1, "in 1 sentence: too few"), (3, "in 3 sentences: too few")])
def test_the_interval_of_a_group_rests_on_the_sentences_that_have_tokens_of_it(sentences, warning):
    rng = np.random.default_rng(0)
    top, codes = np.zeros((1, 1200), dtype=int), rng.integers(0, 6, 1200)
    top[0, 24 : 24 + 12 * sentences] = 1
    made = unrelated_sample(rng, top, codes)
    layers, resampler, _ = measure(made, resamples=500)
    rows = describe(made, layers, resampler).to_pylist()
    inside = made.focus.confidence[0, top[0] == 1].reshape(sentences, 12).mean(axis=1)
    few, categories = (
        [row for row in found if row["group"] == "B"] for found in (rows, categories_table(made).to_pylist())
    )
    for row in few:
        if row["statistic"] in ("purity", "confidence", "entropy"):
            assert warning in row["warning"]
            assert (row["low"] is None) == (sentences == 1)
    assert all((row["low"] is None) == (sentences == 1) for row in categories)
    if sentences == 3:
        row = one(rows, "confidence", 0, "B")
        spread = stats.t.interval(0.95, 2, inside.mean(), stats.sem(inside))
        assert row["high"] - row["low"] == pytest.approx(spread[1] - spread[0], rel=0.35)
    assert one(rows, "share", 0, "B")["low"] == 0


def test_the_count_over_layers_is_their_mean_and_of_a_layer_that_of_the_heads_with_distant_pairs(measured, sample):
    rules = [PairRule(5, 2), PairRule(5, 2, 40)]
    pairs = [distant_pairs(rule, TOKENS) for rule in rules]
    assert [one(measured[0], "distant_pairs_kept", layer)["count"] for layer in (3, 7)] == pairs
    assert one(measured[0], "distant_pairs_kept")["count"] == round(np.mean(pairs))
    reaches_all = Part(1, (1, 2, 3), 1, PairRule(TOKENS))
    mixed = replace(sample, parts=[(sample.parts[0][0], reaches_all), sample.parts[1]])
    layers, resampler, _ = measure(mixed, resamples=2)
    assert one(describe(mixed, layers, resampler).to_pylist(), "distant_pairs_kept", 3)["count"] == pairs[0]


def test_few_pairs_are_not_called_tokens():
    rng = np.random.default_rng(0)
    made = unrelated_sample(rng, np.zeros((1, 5), dtype=int), np.zeros(5, dtype=int))
    layers, resampler, _ = measure(made, resamples=2)
    rows = describe(made, layers, resampler).to_pylist()
    assert "only 15 pairs" in one(rows, "pairs_kept", 0)["warning"]
    assert "only 5 tokens" in one(rows, "dominance", 0)["warning"]
