"""Pairs and attention of stored runs, as the page asks for them, against the stored rows and plain definitions."""

from __future__ import annotations

import base64
import json
import time

import numpy as np
import pytest
import torch

from focus_explorer.cli.main import main
from focus_explorer.data.parts import executed
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import Cancelled, InputError
from focus_explorer.exports.tables.write import table
from focus_explorer.usecases import pairs as module
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.pairs import PairViews, TokenAttentions, measure_attention
from focus_explorer.usecases.runs import run_config
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from focus_runtime.mask.rule import CAUSES, PairRule
from tests.runtime.mask.double_loop import cause

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own(tmp_path_factory, model_folder):
    """A service and a run of its own, so that a measurement starts from nothing."""
    service = Service(tmp_path_factory.mktemp("attention") / "runs.duckdb")
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=6, num_sinks=2, repeats=1)
    return service, analyze(service, "A storm rose, and the ferry turned back to the quay. " * 5, request)


def ask(own, what, **details):
    service, run_id = own
    return json.loads(json.dumps(dispatch(service, {"what": what, "run": run_id, **details})))


def tile_counts(tile):
    raw = np.frombuffer(base64.b64decode(tile["counts"]), f"<u{tile['bytes']}")
    return raw.reshape(5, tile["num_rows"], tile["num_columns"])


def membership(own, layer):
    return executed(own[0].database, fetch_run(own[0].database, own[1]), layer)[layer][0].membership


def test_a_tile_of_single_pairs_names_every_cause(own):
    tile = ask(own, "mask_tile", layer=1, rows=[40, 70], keys=[0, 60])
    assert (tile["block_size"], tile["rows"], tile["keys"], tile["bytes"]) == (1, [40, 71], [0, 61], 1)
    counts, bits = tile_counts(tile), membership(own, 1)
    for i in range(40, 71):
        for j in range(61):
            expected = [int(j <= i and cause(bits, i, j, PairRule(6, 2)) == name) for name in CAUSES]
            assert counts[:, i - 40, j].tolist() == expected


def test_a_coarse_tile_adds_up_to_the_single_pairs(own, monkeypatch):
    monkeypatch.setattr(module, "MOST_CELLS", 9)
    tile = ask(own, "mask_tile", layer=0, rows=[-5, 999], keys=[0, 100])
    total = membership(own, 0).size
    assert tile["block_size"] == -(-total // 9)
    assert max(tile["num_rows"], tile["num_columns"]) <= 9
    monkeypatch.setattr(module, "MOST_CELLS", 9999)
    single = tile_counts(ask(own, "mask_tile", layer=0, rows=[0, total - 1], keys=[0, tile["keys"][1] - 1]))
    size, counts = tile["block_size"], tile_counts(tile)
    for row in range(tile["num_rows"]):
        for column in range(tile["num_columns"]):
            part = single[:, row * size : (row + 1) * size, column * size : (column + 1) * size]
            assert counts[:, row, column].tolist() == part.sum(axis=(1, 2)).tolist()


@pytest.mark.parametrize(
    ("details", "part"),
    [
        ({"layer": 0, "rows": [900, 950], "keys": [0, 5]}, "outside the text"),
        ({"layer": 7, "rows": [0, 5], "keys": [0, 5]}, "no layer 7"),
        ({"layer": "0", "rows": [0, 5], "keys": [0, 5]}, "layer is '0'"),
        ({"layer": 0, "rows": "all", "keys": [0, 5]}, "rows is 'all'"),
    ],
)
def test_a_bad_tile_is_one_clear_message(own, details, part):
    with pytest.raises(InputError, match=part):
        dispatch(own[0], {"what": "mask_tile", "run": own[1], **details})


def test_distances_add_up_to_the_stored_pairs_and_the_mean_is_over_layers(own):
    stored = fetch(own[0].database, "layers", run_id=own[1]).to_pylist()
    layers = [ask(own, "pair_distances", layer=row["layer"]) for row in stored]
    for row, layer in zip(stored, layers, strict=True):
        assert [sum(counts) for counts in layer["counts"]] == [row[name] for name in CAUSES]
    mean = ask(own, "pair_distances_mean")
    pairs = np.array(mean["pairs"])
    expected = np.mean([np.array(layer["counts"]) / pairs for layer in layers], axis=0)
    np.testing.assert_allclose(mean["shares"], expected, atol=1e-6)
    kept = [1 - np.array(layer["counts"][-1]) / pairs for layer in layers]
    np.testing.assert_allclose(mean["kept_most"], np.max(kept, axis=0), atol=1e-6)
    np.testing.assert_allclose(mean["kept_least"], np.min(kept, axis=0), atol=1e-6)
    assert mean["layers"] == len(stored)
    assert mean["sharing"] == [layer["sharing"] for layer in layers]


def wait(own):
    deadline = time.monotonic() + 60
    while (answer := ask(own, "attention"))["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer


@torch.no_grad()
def test_attention_is_measured_on_request_and_equals_the_models_own(own):
    service, run_id = own
    before = ask(own, "attention")
    total = membership(own, 0).size
    assert before == {"state": "none", "num_tokens": total, "whole": total}
    assert ask(own, "attention_links", layer=0) == {
        "columns": ["head", "query", "key", "probability", "affinity"],
        "dropped": [],
        "kept": [],
    }
    assert ask(own, "measure_attention")["state"] in ("running", "done")
    answer = wait(own)
    assert (answer["state"], answer["num_tokens"]) == ("done", total)

    with service.models.lease(fetch_run(service.database, run_id)["model_id"]) as loaded:
        pass
    ids = fetch(service.database, "token_ids", run_id=run_id)["token_id"].to_pylist()
    loaded.model.set_attn_implementation("eager")
    weights = loaded.model(input_ids=torch.tensor([ids]), use_cache=False, output_attentions=True).attentions
    loaded.model.set_attn_implementation("sdpa")
    probabilities = fetch(service.database, "assignments", run_id=run_id).to_pandas()
    for row in range(2):
        bits, layer = membership(own, row), weights[row][0].double().numpy()
        rule = PairRule(6, 2)
        causes = np.array([[cause(bits, i, j, rule) if j <= i else "" for j in range(total)] for i in range(total)])
        kept = 1 - (layer * (causes == "dropped")).sum(axis=(1, 2)) / total
        np.testing.assert_allclose(answer["mass_kept"][row], kept, atol=1e-5)
        links = ask(own, "attention_links", layer=row)
        for kind, name in (("dropped", "dropped"), ("kept", "group_only")):
            far = causes == name
            far[:, :2] = False  # a sink that shares a group is no long-range link
            strongest = np.sort((layer * far).ravel())[::-1][:50]
            np.testing.assert_allclose([link[3] for link in links[kind][:50]], strongest[: len(links[kind])], atol=1e-6)
            head, query, key, probability, affinity = links[kind][0]
            assert far[query, key]
            assert probability == pytest.approx(layer[head, query, key], abs=1e-6)
            p = probabilities[probabilities.layer == row].sort_values("position").probabilities.to_numpy()
            assert affinity == pytest.approx(float(np.dot(p[query], p[key])), abs=1e-5)


def test_a_long_text_is_measured_up_to_the_cap_and_says_so(own, monkeypatch):
    monkeypatch.setattr(module, "MEASURED_TOKENS", 60)
    assert measure_attention(*own) == 60
    answer = ask(own, "attention")
    assert answer["num_tokens"] == 60
    assert all(link[1] < 60 for kind in ("kept", "dropped") for link in ask(own, "attention_links", layer=1)[kind])


def test_a_stopped_or_impossible_measurement_keeps_nothing_new(own, monkeypatch):
    before = fetch(own[0].database, "attention_mass", run_id=own[1])

    def stop(stage, fraction):
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        measure_attention(*own, progress=stop)
    with own[0].models.lease(fetch_run(own[0].database, own[1])["model_id"]) as loaded:
        pass
    monkeypatch.setattr(loaded, "fingerprint", "another")
    with pytest.raises(InputError, match="other weights than when this run was made"):
        measure_attention(*own)
    assert fetch(own[0].database, "attention_mass", run_id=own[1]).equals(before)


def test_the_command_line_measures_at_analysis_time(tmp_path, model_folder, capsys):
    text = tmp_path / "text.txt"
    text.write_text("The bell rang twice over the empty square. " * 4)
    database = tmp_path / "runs.duckdb"
    arguments = ["analyze", str(text), "--model", model_folder, "--centroids", "random", "--window", "5"]
    assert main([*arguments, "--repeats", "1", "--db", str(database), "--attention", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    rows = fetch(Service(database).database, "attention_mass", run_id=summary["run_id"]).to_pylist()
    assert len(rows) == 2 * 4
    assert all(row["mass_kept"] == pytest.approx(row["local"] + row["sinks"] + row["grouped"]) for row in rows)


def test_distances_have_the_bins_of_the_statistics(service, run_id):
    shown = PairViews(service).distances(run_id, 0)
    rows = [row for row in table(service.database, run_id, "distances").to_pylist() if row["layer"] == 0]
    assert [shown["first"], shown["last"]] == [[row["first"] for row in rows], [row["last"] for row in rows]]


def computed(service, run_id, token):
    answer = dispatch(service, {"what": "token_attention_start", "run": run_id, "token": token})
    deadline = time.monotonic() + 60
    while answer["layers"] is None and time.monotonic() < deadline:
        assert answer["job"]["state"] != "failed", answer["job"]["message"]
        time.sleep(0.05)
        answer = dispatch(service, {"what": "token_attention", "run": run_id, "token": token})
    return answer["layers"]


def array(text, dtype, rows):
    return np.frombuffer(base64.b64decode(text), dtype).reshape(rows, -1)


def test_what_focus_keeps_is_the_stored_mask(service, run_id):
    """Every listed pair is kept where the stored groups, window and sinks keep it; probabilities are at most 1."""
    token = 40
    run = fetch(service.database, "run", run_id=run_id).to_pylist()[0]
    config = run_config(run)
    for layer in computed(service, run_id, token):
        rows = fetch(service.database, "assignments", run_id=run_id).to_pylist()
        member = [row["membership"] for row in rows if row["layer"] == layer["layer"]]
        keys = array(layer["keys"], np.int32, layer["rows"])
        full, focus, kept = (array(layer[name], np.float32, layer["rows"]) for name in ("full", "focus", "kept"))
        for place, key in enumerate(keys[1]):
            near = token - key <= config.window or key < config.num_sinks
            assert kept[1, place] == float(near or bool(member[token] & member[key]))
            assert (focus[1, place] == 0) == (kept[1, place] == 0)
        assert ((full.sum(axis=1) <= 1 + 1e-5) & (focus.sum(axis=1) <= 1 + 1e-5)).all()
        shares = array(layer["full_kept"], np.float32, layer["rows"])[:, 0]
        assert ((shares > 0) & (shares <= 1 + 1e-5)).all()


def test_it_is_computed_once_while_few_others_are(service, run_id, monkeypatch):
    first = computed(service, run_id, 12)
    parts = service.part(TokenAttentions)
    monkeypatch.setattr(parts, "_measure", lambda *_: pytest.fail("computed again"))
    assert computed(service, run_id, 12) == first


def test_tokens_that_there_are_not_and_changed_runs_are_refused(service, run_id, monkeypatch):
    count = fetch(service.database, "run", run_id=run_id).to_pylist()[0]["num_tokens"]
    for token in (-1, count):
        with pytest.raises(InputError, match=f"token {token:,} of this run cannot be computed") as refused:
            dispatch(service, {"what": "token_attention_start", "run": run_id, "token": token})
        assert f"0 to {count - 1:,}" in str(refused.value)
    monkeypatch.setattr(module, "MOST_TOKENS", 10)
    with pytest.raises(InputError, match="0 to 9: the model reads all tokens before it"):
        dispatch(service, {"what": "token_attention_start", "run": run_id, "token": 11})
    row = {"num_tokens": 8, "changes": json.dumps(["silence:0:A"])}
    monkeypatch.setattr(module, "fetch_run", lambda *_: row)
    with pytest.raises(InputError, match="changed by hand"):
        dispatch(service, {"what": "token_attention_start", "run": run_id, "token": 3})


def test_nothing_is_known_before_and_a_stop_leaves_nothing(service, run_id, monkeypatch):
    answer = dispatch(service, {"what": "token_attention", "run": run_id, "token": 5})
    assert answer == {"job": None, "layers": None}
    parts = service.part(TokenAttentions)

    def wait(run, token, job):
        while True:
            job.step("Reading the text twice", 0.5)
            time.sleep(0.01)

    monkeypatch.setattr(parts, "_measure", wait)
    dispatch(service, {"what": "token_attention_start", "run": run_id, "token": 5})
    dispatch(service, {"what": "token_attention_stop", "run": run_id, "token": 5})
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        answer = dispatch(service, {"what": "token_attention", "run": run_id, "token": 5})
        if answer["job"]["state"] == "stopped":
            break
        time.sleep(0.02)
    assert answer["job"]["state"] == "stopped"
    assert answer["layers"] is None
