"""Centroid files: uploaded, refused, shipped."""

from __future__ import annotations

import pytest
import torch

from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.centroids.files import add_centroids, check_centroids, shipped_name, uploaded_centroids
from focus_explorer.usecases.runs import run_summary
from focus_runtime.assets import SHIPPED_CENTROIDS
from focus_runtime.config import FocusConfig
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.centroids import random_centroids
from tests.explorer.conftest import TEXT
from tests.helpers import build_model


@pytest.mark.slow
def test_uploaded_file_is_kept_listed_and_usable(tmp_path, service, model_folder):
    model = build_model(vocab_size=512)
    source = random_centroids(model, FocusConfig(num_groups=5, top_k=1), seed=3)
    path = tmp_path / "mine.safetensors"
    digest = save_centroids(source, path)
    added = add_centroids(service, path, "mine.safetensors", model_folder)
    assert (added.sha256, added.name, added.known) == (digest, "mine.safetensors", False)
    assert any("K = 5" in line for line in added.report)
    path.unlink()
    assert [row["sha256"] for row in uploaded_centroids(service.database) if row["name"] == "mine.safetensors"] == [
        digest
    ]
    for name in ("mine.safetensors", digest):
        run = analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids=name, repeats=1))
        assert run_summary(service.database, run)["config"]["num_groups"] == 5
        assert run_summary(service.database, run)["centroids"] == "mine.safetensors"


@pytest.mark.slow
def test_a_check_against_a_model_says_which_groups_nothing_chooses(tmp_path, service, model_folder):
    centroids = random_centroids(build_model(vocab_size=512), FocusConfig(num_groups=3, top_k=1, window=8))
    for router in centroids.routers.values():
        router.potential.copy_(torch.tensor([0.0, 0.0, -1e4]))
        router.has_potential = True
    save_centroids(centroids, tmp_path / "c.safetensors")
    _, report = check_centroids(service, tmp_path / "c.safetensors", model_folder)
    of_layers = "layer 0: groups 2; layer 1: groups 2"
    assert f"note: groups that none of 256 tokens of the sample texts chooses at top-k 1 ({of_layers})" in report
    assert any(line.startswith("keeps ") and "of the pairs of 256 tokens" in line for line in report)


def test_rejected_upload_keeps_nothing(tmp_path, service, model_folder):
    other = build_model(hidden_size=32)
    path = tmp_path / "other.safetensors"
    save_centroids(random_centroids(other, FocusConfig(num_groups=2, top_k=1)), path)
    before = uploaded_centroids(service.database)
    with pytest.raises(InputError, match="width 32"):
        add_centroids(service, path, "other.safetensors", model_folder)
    assert uploaded_centroids(service.database) == before
    assert not list((service.database.path.parent / "centroids").glob("*.part"))


@pytest.mark.parametrize("name", SHIPPED_CENTROIDS)
def test_default_centroids_are_shipped_with_everything(name):
    centroids = load_centroids(name)
    assert centroids.name == name
    assert shipped_name(centroids.sha256) == name
    assert bool(centroids.config.budget) == (name != "novels")
    assert len(centroids.routers) == 30
    assert centroids.config.num_groups == 8
    assert centroids.config.routing_dim == 16
    assert centroids.config.num_sinks == 4
    assert centroids.has_potentials
    assert centroids.base_model == "smollm2-135m"
    assert all(torch.isfinite(router.projection).all() for router in centroids.routers.values())
