"""Rows of statistics for made-up samples whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from focus_explorer.statistics.agreement import between_samples, layer_agreement_table
from focus_explorer.statistics.content import categories_table, characteristic_table
from focus_explorer.statistics.describe import describe, measure
from focus_explorer.statistics.pair_tables import distances_table, long_range_rows, meaningful
from focus_explorer.statistics.rows import COLUMNS, SCHEMA
from focus_explorer.statistics.sample import Groups, MassByQuery, Sample, Scheme

TOKENS = 600


def groups(tops, rng):
    confidence = rng.uniform(0.5, 1.0, tops.shape).astype(np.float32)
    return Groups(tops.astype(np.uint8), 1 << tops.astype(np.int64), confidence, 1 - confidence)


@pytest.fixture
def sample(fresh_seed):
    """Layer 3: groups are the parts of speech. Layer 7: groups by chance."""
    rng = np.random.default_rng(fresh_seed)
    tags = rng.integers(0, 4, TOKENS)
    tops = np.stack([tags, rng.integers(0, 4, TOKENS)])
    piece = tags * 3 + rng.integers(0, 3, TOKENS)
    shares = rng.dirichlet(np.ones(4), (2, TOKENS))
    return Sample(
        layers=[3, 7],
        num_groups=4,
        window=5,
        num_sinks=2,
        focus=groups(tops, rng),
        random=groups(rng.integers(0, 4, (2, TOKENS)), rng),
        pieces=[f" word{n}" for n in range(12)],
        piece=piece,
        schemes={"pos": Scheme(["ADJ", "DET", "NOUN", "VERB"], tags.astype(np.uint8))},
        units=np.arange(TOKENS) // 12,
        unit="sentence",
        starts=np.zeros(TOKENS, dtype=np.int64),
        mass={"focus": MassByQuery(shares), "random": MassByQuery(shares[:, ::-1])},
    )


@pytest.fixture
def found(sample):
    layers, resampler, bins = measure(sample, resamples=300)
    rows = describe(sample, layers, resampler)
    assert rows.schema == SCHEMA
    return rows.to_pylist(), layers, resampler, bins


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


def test_groups_that_are_categories_are_found_and_groups_by_chance_are_not(found):
    rows = found[0]
    same, chance = one(rows, "nmi", 3), one(rows, "nmi", 7)
    assert same["value"] == pytest.approx(1)
    assert same["shuffled"] < 0.05
    assert same["p_value"] == 0.001
    assert chance["value"] < 0.05
    assert chance["low"] is not None
    gain = one(rows, "nmi_minus_random", 3)
    assert gain["low"] > 0.9
    assert gain["window_only"] is None
    assert one(rows, "stability", 3)["value"] == 1
    assert one(rows, "purity", 3)["window_only"] < 0.4
    means = [one(rows, "purity", layer)["value"] for layer in (3, 7)]
    assert one(rows, "purity")["value"] == pytest.approx(np.mean(means))


def test_every_row_has_its_baselines_denominator_and_unit(found, sample):
    for row in found[0]:
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
    assert one(found[0], "confidence")["value"] == pytest.approx(sample.focus.confidence.mean())
    assert one(found[0], "pairs_kept", 3)["count"] == TOKENS * (TOKENS + 1) // 2


def test_group_rows_count_as_by_hand(found, sample):
    top, pos = sample.focus.tops[1], sample.schemes["pos"]
    for group in range(4):
        inside = pos.codes[top == group]
        row = one(found[0], "purity", 7, "ABCD"[group], "pos")
        best = np.bincount(inside, minlength=4).argmax()
        assert row["category"] == f"pos:{pos.names[best]}"
        assert row["count"] == inside.size
        assert row["value"] == pytest.approx((inside == best).mean())
        assert row["window_only"] == pytest.approx((pos.codes == best).mean())
        assert one(found[0], "share", 7, "ABCD"[group])["value"] == pytest.approx(inside.size / TOKENS)


def test_attention_kept_is_the_share_not_dropped(found, sample):
    shares = sample.mass["focus"].shares[0]
    row = one(found[0], "mass_kept", 3)
    assert row["value"] == pytest.approx(1 - shares[:, 3].mean())
    assert row["window_only"] == pytest.approx(shares[:, :2].sum(axis=1).mean())
    far = one(found[0], "distant_mass_kept", 3)["value"]
    assert far == pytest.approx(shares[:, 2].sum() / shares[:, 2:].sum())


def test_corrected_p_values_are_never_below_the_plain_ones(found):
    rows = [row for row in found[0] if row["p_value"] is not None]
    assert rows
    assert all(row["q_value"] >= row["p_value"] - 1e-12 for row in rows)
    told = [row for row in rows if row["p_value"] > 0.05]
    assert all("no more than under shuffled assignments" in row["warning"] for row in told)


def test_a_short_text_is_said_to_tell_nothing(sample):
    few = Sample(**{name: getattr(sample, name) for name in Sample.__slots__} | {"units": np.arange(TOKENS) // 100})
    layers, resampler, _ = measure(few, resamples=50)
    for row in describe(few, layers, resampler).to_pylist():
        assert "6 sentences: too short to tell" in row["warning"]


def test_the_same_sample_gives_the_same_bytes(sample):
    first, second = (describe(sample, *measure(sample, resamples=60)[:2]) for _ in range(2))
    assert first.equals(second)


def test_distances_stand_beside_window_and_chance(found, sample):
    rows = distances_table(sample, *found[1:]).to_pylist()
    near = [row for row in rows if row["last"] <= sample.window]
    assert near
    assert all(row["share"] == row["window_only"] == row["random"] == 1 for row in near)
    far = next(row for row in rows if row["layer"] == 3 and row["first"] > 100)
    assert far["window_only"] < 0.02
    assert far["low"] < far["share"] < far["high"]
    assert far["shuffled"] == pytest.approx(0.25, abs=0.03)
    mean = next(row for row in rows if row["layer"] is None and row["first"] == far["first"])
    assert mean["share"] == pytest.approx(
        np.mean([row["share"] for row in rows if row["layer"] is not None and row["first"] == far["first"]])
    )


def test_categories_and_pieces_that_make_a_group(sample):
    rows = [row for row in categories_table(sample).to_pylist() if row["layer"] == 3 and row["share"] == 1]
    assert len(rows) == 4
    assert all(row["z"] > 10 and row["q_value"] < 1e-6 and row["low"] == row["high"] == 1 for row in rows)
    pieces = [row for row in characteristic_table(sample).to_pylist() if row["kind"] == "characteristic"]
    assert {row["group"] for row in pieces if row["layer"] == 3} == set("ABCD")
    assert all(row["q_value"] <= 0.05 and row["z"] > 0 and row["uses"] >= 2 for row in pieces)


def test_layers_agree_with_themselves_and_not_with_chance(sample):
    row = layer_agreement_table(sample).to_pylist()[0]
    assert (row["layer"], row["other_layer"]) == (3, 7)
    assert abs(row["adjusted_rand"]) < 0.05
    renamed = Groups(
        sample.focus.tops[:, :].max() - sample.focus.tops,
        *(getattr(sample.focus, name) for name in ("membership", "confidence", "entropy")),
    )
    other = Sample(**{name: getattr(sample, name) for name in Sample.__slots__} | {"focus": renamed})
    for row in between_samples(sample, other).to_pylist():
        assert row["adjusted_rand"] == row["overlap"] == 1
        assert row["low"] == 1
        assert row["overlap_shuffled"] < 0.45
        assert abs(row["shuffled"]) < 0.02


def test_long_range_pairs_are_distant_nouns_of_one_group(sample):
    places = meaningful(sample)
    assert set(sample.schemes["pos"].codes[places]) == {2}
    chosen = np.eye(4, dtype=np.float32)[sample.focus.tops[1][places]]
    rows = long_range_rows(sample, 7, places, chosen)
    assert rows
    assert all(row["distance"] > sample.window and row["affinity"] == 1 for row in rows)
    assert len({frozenset((row["query_piece"], row["key_piece"])) for row in rows}) == len(rows)
