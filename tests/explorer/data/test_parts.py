"""Numbers of a run whose heads differ, everywhere they are read, against the pairs of every head one by one."""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow.parquet
import pytest
import torch

from focus_explorer.data.parts import executed, full_layers, part_of, run_parts
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.exports.mask import write_mask
from focus_explorer.exports.tables.write import table
from focus_explorer.statistics.tables import run_statistics
from focus_explorer.usecases.pairs import PairViews
from focus_explorer.usecases.run_payload import layer_cells, load_run
from focus_explorer.usecases.runs import mask_blocks, run_summary
from focus_explorer.usecases.statistics import measure_run
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.rule import CAUSES, PairRule

pytestmark = pytest.mark.slow
HEADS = {  # layer -> of every key-value head: top-k, window; None is full attention
    0: [None] * 4,
    1: [(2, 3), (1, 8), None, (1, 8)],
    2: [(1, 8)] * 4,
    3: [(3, 8)] * 4,
}

GROWTH = (15, 45)  # as in conftest.py


@pytest.fixture(scope="module")
def masks(service, budget_run):
    """layer -> (4, T, T) pairs that each key-value head may use, from the stored probabilities alone."""
    rows = fetch(service.database, "assignments", run_id=budget_run)
    layers = rows["layer"].to_numpy()
    count = int((layers == 1).sum())
    position, made = torch.arange(count), {}
    for layer, heads in HEADS.items():
        probabilities = np.stack(rows["probabilities"].to_numpy()[layers == layer])
        order = np.argsort(-probabilities, axis=1, kind="stable")
        of_layer = []
        for setting in heads:
            k, window = setting or (1, 8)
            bits = torch.from_numpy((1 << order[:, :k].astype(np.int64)).sum(axis=1))
            allowed = allowed_pairs(bits, bits, position, position, PairRule(window, 2, growth=GROWTH)).numpy()
            of_layer.append(np.tril(np.ones_like(allowed)) if setting is None else allowed)
        made[layer] = np.stack(of_layer)
    return made


def pairs_of(masks):
    count = masks.shape[-1]
    return masks.sum(axis=(-2, -1)) / (count * (count + 1) // 2)


def distant(mask, window):
    """Kept over all pairs beyond window and sinks."""
    i, j = np.indices(mask.shape)
    far = (i - j > PairRule(window, growth=GROWTH).near(i)) & (j >= 2)
    return mask[far].mean()


def test_parts_are_the_heads_of_equal_settings(service, budget_run):
    run = fetch_run(service.database, budget_run)
    parts = run_parts(json.loads(run["config"]), fetch(service.database, "parts", run_id=budget_run))
    assert [part.title for part in parts[1]] == [
        "head 0: top-k 2, window 3",
        "heads 1, 3: top-k 1, window 8",
        "head 2: full attention",
    ]
    assert [part.title for part in parts[3]] == ["heads 0, 1, 2, 3: top-k 3, window 8"]
    assert sorted(parts) == [0, 1, 2, 3]
    assert full_layers(parts) == [0]
    assert part_of(parts[1], 1, 3).number == 1
    assert part_of(parts[1], 1, None).number == 0
    with pytest.raises(NotFoundError, match="layer 1 has no key-value head 4; expected 0 to 3"):
        part_of(parts[1], 1, 4)


def test_a_run_without_a_budget_has_one_part_a_layer(service, run_id):
    run = fetch_run(service.database, run_id)
    parts = run_parts(json.loads(run["config"]), fetch(service.database, "parts", run_id=run_id))
    assert {len(of_layer) for of_layer in parts.values()} == {1}
    assert full_layers(parts) == []
    assert "budget" not in table(service.database, run_id, "layers").column_names
    assert "part" not in table(service.database, run_id, "masks").column_names


def test_summary_and_layers_are_means_over_heads(service, budget_run, masks):
    expected = {layer: pairs_of(of).mean() for layer, of in masks.items()}
    summary = run_summary(service.database, budget_run)
    assert summary["retained_pairs"] == pytest.approx(np.mean(list(expected.values())))
    layers = load_run(service.database, budget_run)["layers"]
    for row in layers:
        of_layer = masks[row["layer"]]
        assert row["retained_pairs"] == pytest.approx(expected[row["layer"]])
        total = sum(row["pairs"].values())
        assert total == pytest.approx(of_layer.shape[-1] * (of_layer.shape[-1] + 1) / 2)
        assert 1 - row["pairs"]["dropped"] / total == pytest.approx(expected[row["layer"]])
        for part in row["parts"]:
            for head in part["heads"]:
                assert part["retained_pairs"] == pytest.approx(pairs_of(of_layer[head]))
    stored = table(service.database, budget_run, "layers").to_pylist()
    for row in stored:
        assert sum(row[cause] for cause in CAUSES) == row["causal_pairs"]
        assert 1 - row["dropped"] / row["causal_pairs"] == pytest.approx(expected[row["layer"]], abs=1e-3)
    heads = table(service.database, budget_run, "heads").to_pylist()
    assert [(row["layer"], row["part"], row["heads"], row["top_k"], row["window_size"]) for row in heads] == [
        (0, 0, "0, 1, 2, 3", None, None),
        (1, 0, "0", 2, 3),
        (1, 1, "1, 3", 1, 8),
        (1, 2, "2", None, None),
        (2, 0, "0, 1, 2, 3", 1, 8),
        (3, 0, "0, 1, 2, 3", 3, 8),
    ]
    assert json.loads(heads[0]["budget"])[0] == {"layer": 0, "full": True}
    assert json.loads(heads[0]["window_growth"]) == list(GROWTH)


def test_distant_pairs_are_means_over_heads(service, budget_run, masks):
    expected = {}
    for layer, heads in HEADS.items():
        shares = [distant(of, (setting or (1, 8))[1]) for setting, of in zip(heads, masks[layer], strict=True)]
        expected[layer] = np.mean(shares)
    summary = run_summary(service.database, budget_run)
    assert summary["distant_pairs_kept"] == pytest.approx(np.mean(list(expected.values())))
    rows = run_statistics(service.database, budget_run).table("statistics").to_pylist()
    exact = {
        row["layer"]: row["value"]
        for row in rows
        if row["statistic"] == "distant_pairs_kept" and row["layer"] is not None
    }
    assert exact == pytest.approx(expected)
    views = PairViews(service)
    assert {layer: views.distances(budget_run, layer)["beyond"][0] for layer in HEADS} == pytest.approx(expected)
    assert views.distance_mean(budget_run)["beyond"] == pytest.approx(list(expected.values()))


def test_the_mask_of_a_head_is_exported(service, budget_run, masks, tmp_path):
    for head in range(4):
        path = write_mask(service.database, budget_run, 1, "parquet", tmp_path / f"{head}.parquet", head=head)
        rows = pyarrow.parquet.read_table(path)
        found = np.zeros_like(masks[1][head])
        found[rows["query"].to_numpy(), rows["key"].to_numpy()] = 1
        np.testing.assert_array_equal(found, masks[1][head])
    about = json.loads(rows.schema.metadata[b"focus_explorer"])
    assert about["heads"] == "heads 1, 3: top-k 1, window 8"
    message = r"the heads of layer 1 differ \(head 0: top-k 2, window 3; heads 1, 3: .*--head"
    with pytest.raises(InputError, match=message):
        write_mask(service.database, budget_run, 1, "parquet", tmp_path / "no.parquet")
    assert not (tmp_path / "no.parquet").exists()
    alike = write_mask(service.database, budget_run, 3, "parquet", tmp_path / "alike.parquet")
    assert pyarrow.parquet.read_table(alike).num_rows == masks[3][0].sum()


def test_tiles_and_blocks_are_of_the_part_chosen(service, budget_run, masks):
    views = PairViews(service)
    count = masks[1].shape[-1]
    for number, head in enumerate((0, 1, 2)):
        blocks = np.frombuffer(
            base64.b64decode(mask_blocks(service.database, budget_run, 1, number)["counts"]), np.uint32
        )
        assert blocks.reshape(5, -1)[:-1].sum() == masks[1][head].sum()
        tile = views.tile(budget_run, 1, (0, 40), (0, 40), number)
        counts = np.frombuffer(base64.b64decode(tile["counts"]), np.uint8).reshape(5, 40, 40)
        np.testing.assert_array_equal(counts[:4].sum(axis=0), masks[1][head][:40, :40])
    for wrong in (3, -1):
        with pytest.raises(NotFoundError, match="no part"):
            views.tile(budget_run, 1, (0, count), (0, count), wrong)
    with pytest.raises(NotFoundError, match="no layer 1 with a part 3"):
        mask_blocks(service.database, budget_run, 1, 3)


def test_pairs_by_distance_are_means_over_heads(service, budget_run, masks):
    views, statistics = PairViews(service), run_statistics(service.database, budget_run).table("distances").to_pylist()
    apart = np.subtract.outer(np.arange(masks[1].shape[-1]), np.arange(masks[1].shape[-1]))
    for layer, of_layer in masks.items():
        answer = views.distances(budget_run, layer)
        for place, (first, last) in enumerate(zip(answer["first"], answer["last"], strict=True)):
            here = (apart >= first) & (apart <= last)
            counts = [row[place] for row in answer["counts"]]
            assert sum(counts) == pytest.approx(here.sum())
            assert counts[-1] == pytest.approx((1 - of_layer[:, here]).sum(axis=1).mean())
        for row in (row for row in statistics if row["layer"] == layer):
            here = (apart >= row["first"]) & (apart <= row["last"])
            assert row["share"] == pytest.approx(of_layer[:, here].mean())
    mean = views.distance_mean(budget_run)
    window_only = mean["layer_window_only"]
    assert window_only[1] < window_only[0] == window_only[2] == window_only[3]


def test_the_page_gets_the_groups_of_every_part(service, budget_run):
    run = fetch_run(service.database, budget_run)
    parts = executed(service.database, run, 1)[1]
    cells = layer_cells(service.database, budget_run, 1)
    assert list(cells["part_memberships"]) == ["0"]  # part 1 has the layer's own, part 2 attends fully
    bits = np.frombuffer(base64.b64decode(cells["part_memberships"]["0"]), f"<u{cells['width']}")
    np.testing.assert_array_equal(bits, parts[0].membership)
    assert "part_memberships" not in layer_cells(service.database, budget_run, 2)
    payload = load_run(service.database, budget_run)
    assert payload["full_layers"] == [0]
    assert payload["cells"]["1"] == cells
    assert [part["full"] for part in payload["layers"][1]["parts"]] == [False, False, True]


@pytest.mark.long
def test_random_centroids_and_attention_follow_the_budget(service, budget_run):
    measure_run(service, budget_run, tags=False, attention=True)
    sample = run_statistics(service.database, budget_run).sample
    few, usual, full = sample.parts[1]
    random = sample.random
    assert random is not None
    counts = [np.bitwise_count(random.executed(1, part)) for part in (few, usual, full)]
    assert [set(one.tolist()) for one in counts] == [{2}, {1}, {1}]
    assert (random.executed(1, few) & random.executed(1, usual) == random.executed(1, usual)).all()
    assert set(random.executed(1, full).tolist()) == {1}
    rows = fetch(service.database, "attention_mass", run_id=budget_run).to_pylist()
    by_head = {row["head"]: row["mass_kept"] for row in rows if row["layer"] == 1}
    assert by_head[4] == by_head[5] == pytest.approx(1.0)  # the query heads that share key-value head 2
    assert by_head[2] < 0.999
    sharing = [1 if part.full else shared(sample.focus.executed(1, part)) for part in sample.parts[1]]
    of_heads = [sharing[part] for part in (0, 0, 1, 1, 2, 2, 1, 1)]
    far = [row["grouped"] + row["dropped"] for row in rows if row["layer"] == 1]
    chance = pytest.approx(np.average(of_heads, weights=far))
    assert np.mean(of_heads) != chance
    assert PairViews(service).attention(budget_run)["sharing"][1] == chance
    table = run_statistics(service.database, budget_run).table("statistics").to_pylist()
    shuffled = {row["statistic"]: row["shuffled"] for row in table if row["scope"] == "layer" and row["layer"] == 1}
    assert shuffled["distant_mass_kept"] == chance
    near = [row["local"] + row["sinks"] for row in rows if row["layer"] == 1]
    assert shuffled["mass_kept"] == pytest.approx(np.mean(near) + np.mean(np.multiply(far, of_heads)))


def shared(membership):
    """Share of pairs of two tokens with a common group."""
    meet = (membership[:, None] & membership[None, :]) != 0
    return meet[~np.eye(membership.size, dtype=bool)].mean()
