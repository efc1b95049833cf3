"""The answers of the Groups view, from a real database."""

from __future__ import annotations

import base64
import json
from collections import Counter
from shutil import copy2

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.exports.tables.write import table
from focus_explorer.usecases.groups import read_routes
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from focus_runtime.mask.rule import group_label
from focus_runtime.text.tagging import classify


def rows_of(service, run_id):
    return fetch(service.database, "assignments", run_id=run_id).to_pylist()


def ask(service, run_id, what, **details):
    return dispatch(service, {"what": what, "run": run_id, **details})


def test_routes_are_the_stored_assignments(service, run_id):
    routes = read_routes(service.database, run_id)
    for row in rows_of(service, run_id):
        assert routes.tops[routes.layers.index(row["layer"]), row["position"]] == row["top_group"]
    pieces = [row["piece"] for row in fetch(service.database, "tokens", run_id=run_id).to_pylist()]
    assert [routes.pieces[code] for code in routes.codes] == pieces
    assert len(set(routes.pieces)) == len(routes.pieces)


def test_groups_agree_with_the_rows(service, run_id):
    answer = ask(service, run_id, "groups")
    json.dumps(answer)
    pieces = [row["piece"] for row in fetch(service.database, "tokens", run_id=run_id).to_pylist()]
    classes = classify(pieces).classes
    names = answer["class_names"]
    sent = np.frombuffer(base64.b64decode(answer["classes"]), np.uint8)
    assert [names[number] for number in sent] == classes
    rows, layers = rows_of(service, run_id), read_routes(service.database, run_id).layers
    for layer, groups in zip(layers, answer["groups"], strict=True):
        assert sum(group["tokens"] for group in groups) == len(pieces)
        for index, group in enumerate(groups):
            inside = [row for row in rows if row["layer"] == layer and row["top_group"] == index]
            assert group["tokens"] == len(inside)
            if not inside:
                assert group["purity"] is None
                assert group["flags"] == ["dead"]
                continue
            counted = Counter(classes[row["position"]] for row in inside)
            assert {names[i]: n for i, n in enumerate(group["classes"]) if n} == dict(counted)
            assert group["purity"] == pytest.approx(max(counted.values()) / len(inside))
            assert group["base_rate"] == pytest.approx(classes.count(names[group["top_class"]]) / len(classes))
            assert group["balance"] == pytest.approx(len(inside) * len(groups) / len(pieces))
            shares = np.array([row["probabilities"] for row in inside], dtype=np.float64)
            assert group["confidence"] == pytest.approx(shares.max(axis=1).mean(), rel=1e-5)
            assert group["entropy"] == pytest.approx(-(shares * np.log(shares)).sum(axis=1).mean(), rel=1e-3)
            uses = Counter(pieces[row["position"]] for row in inside)
            assert all(uses[piece] == count >= 2 and z > 0 for piece, z, count in group["characteristic"])


def test_the_attention_kept_is_the_mean_over_heads_once_it_is_measured(service, run_id, tmp_path):
    answer = ask(service, run_id, "groups")
    assert (answer["attention_tokens"], answer["attention_heads"]) == (None, None)
    assert {group["attention_mass"] for groups in answer["groups"] for group in groups} == {None}
    own = Service(copy2(service.database.path, tmp_path / "runs.duckdb"))
    layers = read_routes(service.database, run_id).layers
    kept = {layer: [0.25 + 0.01 * layer, 0.75] for layer in layers}
    with own.database.write() as connection:
        for layer, heads in kept.items():
            for head, share in enumerate(heads):
                values = [run_id, layer, head, 40, share / 2, 0.0, share / 2, 1 - share, share, share / (2 - share)]
                connection.execute("INSERT INTO attention_mass VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    answer = ask(own, run_id, "groups")
    assert (answer["attention_tokens"], answer["attention_heads"]) == (40, 2)
    for layer, groups in zip(layers, answer["groups"], strict=True):
        for group in groups:
            assert group["attention_mass"] == pytest.approx(np.mean(kept[layer]))


def test_agreement_has_a_row_for_every_layer(service, run_id):
    answer = ask(service, run_id, "agreement")
    layers = len(read_routes(service.database, run_id).layers)
    assert np.shape(answer["agreement"]) == (layers, layers)
    assert answer["pairs"] == layers - 1
    assert -1 <= answer["shuffled"][0] <= answer["shuffled"][1] <= 1


def test_unknown_runs_and_layers_are_named(service, run_id):
    for what in ("groups", "agreement", "map"):
        with pytest.raises(NotFoundError, match="no run 'nope'"):
            ask(service, "nope", what)
    with pytest.raises(NotFoundError, match="no layer 99"):
        ask(service, run_id, "map", layer=99, quick=True)
    with pytest.raises(InputError, match=r"layer is .first.; expected a whole number"):
        ask(service, run_id, "map", layer="first")


def test_tokens_stand_out_as_in_the_statistics(service, run_id):
    answer, layers = ask(service, run_id, "groups"), read_routes(service.database, run_id).layers
    rows = table(service.database, run_id, "characteristic").to_pylist()
    shown = 0
    for layer, groups in zip(layers, answer["groups"], strict=True):
        for index, group in enumerate(groups):
            name = (layer, group_label(index), "characteristic")
            strongest = [row for row in rows if (row["layer"], row["group"], row["kind"]) == name][:6]
            expected = [(row["piece"], round(row["z"], 1), row["uses"]) for row in strongest]
            assert [tuple(one) for one in group["characteristic"]] == expected
            shown += len(expected)
    assert shown
    assert answer["most_q"] == 0.05
