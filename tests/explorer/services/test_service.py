"""The use cases behind page and command line, on a tiny model and a real database."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
import torch

from focus_explorer.data.queries import fetch
from focus_explorer.errors import ConfigError, InputError, ModelError, NotFoundError, TextError
from focus_explorer.services.analyze import AnalyzeRequest, analyze
from focus_explorer.services.centroids.files import add_centroids, uploaded_centroids
from focus_explorer.services.maps import map_payload
from focus_explorer.services.run_payload import load_run
from focus_explorer.services.runs import list_runs, mask_blocks, run_summary
from focus_explorer.services.service import Service
from focus_explorer.services.texts import SAMPLES, read_text_file, sample_text
from focus_runtime.config import FocusConfig
from focus_runtime.errors import Cancelled
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.centroids import random_centroids
from tests.explorer.conftest import TEXT
from tests.helpers import build_model


def test_summary_numbers_agree_with_the_rows(service, run_id):
    summary = run_summary(service.database, run_id)
    losses = fetch(service.database, "losses", run_id=run_id).to_pylist()
    for mode in ("full", "focus"):
        nll = [row["nll"] for row in losses if row["mode"] == mode]
        assert summary["perplexity"][mode] == pytest.approx(np.exp(np.mean(nll)))
        assert len(nll) == summary["num_tokens"] - 1 == summary["scored_tokens"]
        assert summary["milliseconds"]["end_to_end"][mode]["repeats"] == 2
    assert 0 < summary["retained_pairs"] < 1
    assert 1 / 4 <= summary["dominance"] <= 1


def check_cells(cells, rows, groups):
    """A layer as the page gets it, against the stored rows in order of position."""
    assert cells["width"] == 1
    member = np.frombuffer(base64.b64decode(cells["membership"]), f"<u{cells['width']}")
    assert member.tolist() == [row["membership"] for row in rows]
    shown = np.frombuffer(base64.b64decode(cells["probabilities"]), np.uint8).reshape(-1, groups) / 255
    exact = np.array([row["probabilities"] for row in rows])
    np.testing.assert_allclose(shown, exact, atol=0.002)
    entropy = -(exact * np.log(np.clip(exact, 1e-30, None))).sum(axis=1) / np.log(groups)
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(cells["entropy"]), np.uint8) / 255, entropy, atol=0.003)


def test_payload_matches_the_database(service, run_id):
    payload = load_run(service.database, run_id)
    count, layers, groups = payload["run"]["num_tokens"], payload["num_layers"], payload["run"]["config"]["num_groups"]
    assert len(payload["pieces"]) == count
    top = np.frombuffer(base64.b64decode(payload["top"]), np.uint8).reshape(layers, count)
    rows = fetch(service.database, "assignments", run_id=run_id).to_pylist()
    assert top.ravel().tolist() == [row["top_group"] for row in rows]
    stored = {
        mode: [
            row["nll"] for row in fetch(service.database, "losses", run_id=run_id).to_pylist() if row["mode"] == mode
        ]
        for mode in ("full", "focus")
    }
    for mode, nll in stored.items():
        np.testing.assert_allclose(np.frombuffer(base64.b64decode(payload["losses"][mode]), "<f4"), nll, rtol=1e-6)
    for layer in payload["layer_ids"]:
        cells = payload["cells"][str(layer)]
        own = [row for row in rows if row["layer"] == layer]
        check_cells(cells, own, groups)
    for number, layer in enumerate(payload["layers"]):
        assert sum(layer["pairs"].values()) == count * (count + 1) // 2
        shares = [cell["share"] for cell in payload["groups"][number]]
        assert sum(shares) == pytest.approx(1)
        assert layer["dominance"] == pytest.approx(max(shares))
    json.dumps(payload)


def test_mask_payload_adds_up(service, run_id):
    layer = load_run(service.database, run_id)["layer_ids"][0]
    mask = mask_blocks(service.database, run_id, layer)
    counts = np.frombuffer(base64.b64decode(mask["counts"]), "<u4").reshape(5, -1)
    blocks = mask["num_blocks"]
    assert counts.shape[1] == blocks * (blocks + 1) // 2
    count = run_summary(service.database, run_id)["num_tokens"]
    assert counts.sum() == count * (count + 1) // 2


@pytest.mark.slow
def test_projection_is_stored_and_the_same_when_read_again(service, run_id):
    layer = load_run(service.database, run_id)["layer_ids"][0]
    first = map_payload(service, run_id, layer)
    assert first["method"] == "UMAP"
    assert len(first["x"]) == run_summary(service.database, run_id)["num_tokens"]
    assert len(first["centroid_x"]) == 4
    assert 0 < first["trustworthiness"] <= 1
    assert map_payload(service, run_id, layer) == first


def test_missing_run_and_layer_are_named(service, run_id):
    with pytest.raises(NotFoundError, match="no run 'nope'"):
        run_summary(service.database, "nope")
    with pytest.raises(NotFoundError, match="no layer 99"):
        mask_blocks(service.database, run_id, 99)
    with pytest.raises(NotFoundError, match="no layer 99"):
        map_payload(service, run_id, 99)


@pytest.mark.parametrize(
    ("changes", "error", "part"),
    [
        ({"top_k": 9}, ConfigError, "top_k is 9"),
        ({"top_k": 0}, ConfigError, "top_k is 0"),
        ({"window": -1}, ConfigError, "window is -1"),
        ({"num_sinks": -2}, ConfigError, "num_sinks is -2"),
        ({"assignment": "magic"}, ConfigError, "assignment is 'magic'"),
        ({"max_tokens": 1}, ConfigError, "max_tokens is 1"),
        ({"model": "no-such-model-anywhere"}, ModelError, "no-such-model-anywhere"),
        ({"centroids": "missing.safetensors"}, InputError, "missing.safetensors"),
        ({"centroids": "unheard-of"}, NotFoundError, "unheard-of"),
        ({"centroids": "default"}, InputError, "width 576"),
    ],
)
def test_bad_requests_are_named_and_keep_nothing(service, model_folder, run_id, changes, error, part):
    before = len(list_runs(service.database))
    settings = {"model": model_folder, "centroids": "random", **changes}
    with pytest.raises(error, match=part):
        analyze(service, TEXT, AnalyzeRequest(**settings))
    assert len(list_runs(service.database)) == before


def test_cancelling_keeps_nothing(service, model_folder, run_id):
    before = len(list_runs(service.database))
    with pytest.raises(Cancelled):
        analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids="random"), cancelled=lambda: True)
    assert len(list_runs(service.database)) == before
    assert analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids="random", repeats=1))


def test_cut_and_context_are_noted(service, model_folder):
    run = analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids="random", max_tokens=40, repeats=1))
    notes = " ".join(run_summary(service.database, run)["notes"])
    assert "cut to its first 40" in notes
    assert "no longer than the window" in notes
    assert "estimated" in notes


def test_a_text_beyond_the_context_is_analysed_with_a_warning(service, run_id):
    """The tiny model was made for 256 positions; the text is longer."""
    assert run_summary(service.database, run_id)["num_tokens"] > 256
    notes = " ".join(run_summary(service.database, run_id)["notes"])
    assert "more than the 256 the model was trained for" in notes
    assert "--max-tokens 256" in notes


def test_uploaded_file_is_kept_listed_and_usable(tmp_path, service, model_folder):
    model = build_model(vocab_size=512)
    source = random_centroids(model, FocusConfig(num_groups=5, top_k=1), seed=3)
    path = tmp_path / "mine.safetensors"
    digest = save_centroids(source, path)
    report = add_centroids(service, path, "mine.safetensors", model_folder)
    assert any("K = 5" in line for line in report)
    path.unlink()
    assert [row["sha256"] for row in uploaded_centroids(service.database) if row["name"] == "mine.safetensors"] == [
        digest
    ]
    for name in ("mine.safetensors", digest):
        run = analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids=name, repeats=1))
        assert run_summary(service.database, run)["config"]["num_groups"] == 5
        assert run_summary(service.database, run)["centroids"] == "mine.safetensors"


def test_rejected_upload_keeps_nothing(tmp_path, service, model_folder):
    other = build_model(hidden_size=32)
    path = tmp_path / "other.safetensors"
    save_centroids(random_centroids(other, FocusConfig(num_groups=2, top_k=1)), path)
    before = uploaded_centroids(service.database)
    with pytest.raises(InputError, match="width 32"):
        add_centroids(service, path, "other.safetensors", model_folder)
    assert uploaded_centroids(service.database) == before
    assert not list((service.database.path.parent / "centroids").glob("*.part"))


def test_samples_exist_and_are_long_enough():
    for name in SAMPLES:
        assert len(sample_text(name)) > 1000


def test_text_file_problems_are_named(tmp_path, monkeypatch):
    with pytest.raises(TextError, match="cannot read"):
        read_text_file(tmp_path / "missing.txt")
    big = tmp_path / "big.txt"
    with big.open("wb") as stream:
        stream.truncate(50 * 2**20)
    with pytest.raises(TextError, match="50 MB"):
        read_text_file(big)


def test_default_centroids_are_shipped_with_everything():
    centroids = load_centroids("default")
    assert len(centroids.routers) == 30
    assert centroids.config.num_groups == 8
    assert centroids.config.routing_dim == 16
    assert centroids.config.num_sinks == 4
    assert centroids.has_potentials
    assert centroids.base_model == "smollm2-135m"
    assert all(torch.isfinite(router.projection).all() for router in centroids.routers.values())


def test_two_services_share_one_file(service, run_id):
    assert run_summary(Service(service.database.path).database, run_id) == run_summary(service.database, run_id)
