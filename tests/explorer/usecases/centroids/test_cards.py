"""Cards of centroid files: training facts, similarity, balance of the runs, and what changed between two."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.centroids.files import add_centroids, load_named_centroids, shipped_row, uploaded_centroids
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.service import Service
from focus_runtime.config import FocusConfig
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.routing.centroids import random_centroids
from tests.explorer.conftest import TEXT
from tests.helpers import build_model


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, model_folder):
    """A service with three uploads: a file, the same with its groups in another order and basis, and one with K = 3."""
    folder = tmp_path_factory.mktemp("files")
    service = Service(folder / "runs.duckdb")
    model, _ = load_model(model_folder)
    first = random_centroids(model, FocusConfig(num_groups=4, top_k=1, window=8), seed=1)
    first.training = {
        "steps": 5,
        "texts": ["a.txt"],
        "odd": {"x": [1]},
        "loss": "distil",
        "domains": [{"name": "novels", "weight": 1.0, "tokens": 9}, {"weight": 2}, "x", {"name": 3}],
        "balanced": {"sequences": 3, "seq_len": 1024, "domains": [{"name": "novels"}, {"name": ["x"]}]},
        "validation": {"full": 20.0, "scored_tokens": 99, "k=1": {"perplexity": 21.5, "dominance": 0.3}, "note": "x"},
    }
    turned = random_centroids(model, FocusConfig(num_groups=4, top_k=1, window=16), seed=1)
    rotation = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(0))).Q
    with torch.no_grad():
        for router in turned.routers.values():
            router.projection.copy_(router.projection @ rotation)
            router.centroids.copy_((router.centroids @ rotation)[[2, 0, 3, 1]])
    other = random_centroids(model, FocusConfig(num_groups=3, top_k=1, window=8), seed=9)
    for name, centroids in (("first", first), ("turned", turned), ("other", other)):
        save_centroids(centroids, folder / f"{name}.safetensors")
        add_centroids(service, folder / f"{name}.safetensors", name, model_folder)
    files = {row["name"]: row["sha256"] for row in uploaded_centroids(service.database)}
    request = AnalyzeRequest(model=model_folder, centroids=files["first"], repeats=1, max_tokens=60)
    return service, files, analyze(service, TEXT, request)


@pytest.mark.slow
def test_cards_tell_what_the_file_says_and_no_more(shelf):
    service, _, _ = shelf
    cards = {card["name"]: card for card in CentroidCards(service).cards()}
    assert cards["first"]["training"] == {
        "steps": 5,
        "texts": ["a.txt"],
        "loss": "distil",
        "domains": ["novels"],
        "balanced": ["novels"],
    }
    assert cards["first"]["held_out"] == {
        "full": 20.0,
        "scored": 99,
        "focus": {"k=1": {"perplexity": 21.5, "dominance": 0.3}},
    }
    assert cards["other"]["held_out"] is None
    assert cards["other"]["budget_held_out"] == 0
    assert cards["default"]["held_out"] is None
    rows = CentroidCards(service).detail(cards["default"]["sha256"])["budgets"]["held_out"]
    assert cards["default"]["budget_held_out"] == len(rows) > 0
    assert cards["novels"]["held_out"]["focus"]["k=1"]["perplexity"] == pytest.approx(25.077, abs=1e-3)
    json.dumps(list(cards.values()))


def test_balance_comes_from_the_runs_that_used_the_file(shelf):
    service, files, run_id = shelf
    detail = CentroidCards(service).detail(files["first"])
    assert [run["run_id"] for run in detail["runs"]] == [run_id]
    payload = load_run(service.database, run_id)
    for number, layer in enumerate(detail["runs"][0]["layers"]):
        assert layer["shares"] == pytest.approx([cell["share"] for cell in payload["groups"][number]], abs=1e-4)
        assert layer["dominance"] == pytest.approx(max(layer["shares"]), abs=1e-4)
        entropy = -sum(share * math.log(share) for share in layer["shares"] if share > 0)
        assert layer["balance"] == pytest.approx(entropy / math.log(4), abs=1e-3)
    assert CentroidCards(service).detail(files["other"])["runs"] == []


def test_similarity_is_the_cosine_of_the_centroids(shelf):
    service, files, _ = shelf
    detail = CentroidCards(service).detail(files["first"])
    router = load_named_centroids(service.database, files["first"]).routers[1]
    unit = torch.nn.functional.normalize(router.centroids.detach(), dim=-1)
    np.testing.assert_allclose(detail["layers"][1]["similarity"], unit @ unit.T, atol=1e-3)


def test_groups_that_were_only_renumbered_and_turned_have_distance_zero(shelf):
    service, files, _ = shelf
    compared = CentroidCards(service).compare(files["first"], files["turned"])
    assert ("window", 8, 16) in compared["settings"]
    different = {name for name, _, _ in compared["settings"]}
    assert different == {"window", "steps", "texts", "loss", "domains", "balanced", "random_seed"}
    for layer in compared["layers"]:
        assert sorted(pair[:2] for pair in layer["pairs"]) == [(0, 1), (1, 3), (2, 0), (3, 2)]
        assert layer["worst"] == pytest.approx(0, abs=1e-4)
        assert layer["null"] > 0.3
    compared = CentroidCards(service).compare(files["first"], files["other"])
    for layer in compared["layers"]:
        assert len(layer["pairs"]) == 3
        assert [len(side) for side in layer["unmatched"]] == [1, 0]
        assert layer["mean"] > 0.3


def test_what_cannot_be_compared_is_said(shelf):
    service, files, _ = shelf
    cards = CentroidCards(service)
    default = shipped_row("default")["sha256"]
    assert "different models" in cards.compare(files["first"], default)["problem"]
    for pair in ((files["first"], files["first"]), ("nope", files["first"])):
        with pytest.raises(InputError):
            cards.compare(*pair)


def test_a_file_that_is_gone_keeps_its_card_with_one_message(shelf):
    service, files, _ = shelf
    path = Path(next(row["path"] for row in uploaded_centroids(service.database) if row["name"] == "other"))
    kept = path.read_bytes()
    try:
        path.write_bytes(kept[:100])
        card = next(card for card in CentroidCards(service).cards() if card["name"] == "other")
        assert card["problem"]
        assert "\n" not in card["problem"]
        with pytest.raises(InputError):
            CentroidCards(service).detail(files["other"])
    finally:
        path.write_bytes(kept)


@pytest.mark.long
@pytest.mark.slow
def test_what_a_runs_centroids_were_trained_on_is_said(service, run_id, tmp_path, model_folder):
    cards = CentroidCards(service)
    assert cards.trained_on(run_id) == {"texts": []}  # random ones
    default = {"domains": [{"name": "novels", "tokens": 3}, {"name": "python"}], "texts": ["/home/me/a.txt"]}
    made = random_centroids(build_model(vocab_size=512), FocusConfig(num_groups=3, top_k=1, window=8), seed=77)
    for name, training, texts in (
        ("domains", default, ["novels", "python"]),
        ("texts", {"texts": ["/home/me/a.txt", "b.txt"]}, ["a.txt", "b.txt"]),
    ):
        made.training = training
        save_centroids(made, tmp_path / f"{name}.safetensors")
        sha256 = add_centroids(service, tmp_path / f"{name}.safetensors", name, model_folder).sha256
        run = analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids=sha256, repeats=1, max_tokens=40))
        assert cards.trained_on(run) == {"texts": texts}
    with pytest.raises(NotFoundError):
        cards.trained_on("nope")
