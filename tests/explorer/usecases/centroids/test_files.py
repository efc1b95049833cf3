"""Centroid files: uploaded, refused, shipped, renamed, removed, and what their training records say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.centroids import files
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.centroids.files import (
    add_centroids,
    balanced_on,
    check_centroids,
    domain_names,
    kept_folder,
    remove_file,
    rename_file,
    shipped_name,
    uploaded_centroids,
)
from focus_explorer.usecases.run_model import lease_run_model, run_centroids
from focus_explorer.usecases.runs import run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import acting_as
from focus_runtime.assets import SHIPPED_CENTROIDS, asset_path
from focus_runtime.config import FocusConfig
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.centroids import random_centroids
from tests.explorer.conftest import TEXT
from tests.helpers import build_model


@pytest.mark.parametrize("record", [None, 3, "novels", [], {}, {"domains": "novels"}, {"domains": [{"name": 3}, "x"]}])
def test_a_record_without_names_gives_none(record):
    assert domain_names(record) == []
    assert balanced_on({"balanced": record}) == []


def test_the_domains_are_named_and_else_the_amount_of_text():
    record = {"sequences": 1200, "seq_len": 1024}
    assert balanced_on({"balanced": record}) == ["1,200 sequences of 1,024 tokens"]
    assert balanced_on({"balanced": record | {"domains": [{"name": "novels"}, {"name": "code"}]}}) == ["novels", "code"]
    assert balanced_on({}) == []


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
    rows = uploaded_centroids(service.database)
    assert [row["sha256"] for row in rows if row["name"] == "mine.safetensors"] == [digest]
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


pytestmark = pytest.mark.slow


@pytest.fixture
def own(tmp_path):
    return Service(tmp_path / "data" / "runs.duckdb")


def saved(folder, name, seed=3):
    path = folder / f"{name}.safetensors"
    save_centroids(random_centroids(build_model(vocab_size=512), FocusConfig(num_groups=5, top_k=1), seed=seed), path)
    return path


def names(service):
    return {row["name"] for row in uploaded_centroids(service.database)}


def test_the_same_file_again_adds_nothing(own, tmp_path):
    path = saved(tmp_path, "mine")
    first = add_centroids(own, path, "mine", None)
    rows = uploaded_centroids(own.database)
    again = add_centroids(own, path, "another name", None)
    assert (again.sha256, again.name, again.known) == (first.sha256, "mine", True)
    assert uploaded_centroids(own.database) == rows
    assert len(list(kept_folder(own.database).iterdir())) == 1
    shipped = add_centroids(own, asset_path("centroids", SHIPPED_CENTROIDS["default"]), "a copy of it", None)
    assert (shipped.name, shipped.known) == ("default", True)
    Path(rows[0]["path"]).unlink()  # somebody tidied up: the upload brings it back
    assert not add_centroids(own, path, "mine", None).known
    assert Path(rows[0]["path"]).exists()


def test_a_file_is_renamed(own, tmp_path):
    sha256 = add_centroids(own, saved(tmp_path, "mine"), "mine", None).sha256
    other = add_centroids(own, saved(tmp_path, "other", seed=4), "other", None).sha256
    rename_file(own, sha256, "  the   best ")
    assert names(own) == {"the best", "other"}
    for name, part in (("other", "another file"), ("default", "another file"), ("", "empty"), ("x" * 121, "121")):
        with pytest.raises(InputError, match=part):
            rename_file(own, sha256, name)
    rename_file(own, other, "other")  # its own name
    assert names(own) == {"the best", "other"}


def test_a_removed_file_is_gone_and_its_runs_stay(own, tmp_path, model_folder):
    path = saved(tmp_path, "mine")
    sha256 = add_centroids(own, path, "mine", model_folder).sha256
    run_id = analyze(own, TEXT, AnalyzeRequest(model=model_folder, centroids=sha256, repeats=1))
    card = next(card for card in CentroidCards(own).cards() if card["sha256"] == sha256)
    assert (card["runs"], card["owner"]) == (1, None)
    remove_file(own, sha256)
    assert names(own) == set()
    assert list(kept_folder(own.database).iterdir()) == []
    assert run_summary(own.database, run_id)["centroids"] == "mine"
    row = fetch_run(own.database, run_id)
    with lease_run_model(own, row) as loaded:
        with pytest.raises(NotFoundError, match="upload"):
            run_centroids(own, row, loaded)
        add_centroids(own, path, "mine again", model_folder)
        assert run_centroids(own, row, loaded).sha256 == sha256
    with pytest.raises(NotFoundError):
        remove_file(own, "0" * 64)


def test_a_file_elsewhere_is_only_taken_from_the_list(own, tmp_path):
    path = saved(tmp_path, "training")
    files.register_in_place(own.database, path)
    remove_file(own, uploaded_centroids(own.database)[0]["sha256"])
    assert path.exists()
    assert names(own) == set()


def test_shipped_files_and_those_of_others_are_refused(own, tmp_path):
    with pytest.raises(InputError, match="ships with the project"):
        remove_file(own, files.shipped_row("default")["sha256"])
    with acting_as("ada"):
        sha256 = add_centroids(own, saved(tmp_path, "mine"), "mine", None).sha256
    with acting_as("ben"):
        for change in (lambda: remove_file(own, sha256), lambda: rename_file(own, sha256, "ours")):
            with pytest.raises(InputError, match="belongs to ada"):
                change()
        add_centroids(own, tmp_path / "mine.safetensors", "ours", None)  # the same again does not make it his
    assert [(row["name"], row["owner"]) for row in uploaded_centroids(own.database)] == [("mine", "ada")]
    with acting_as("ada"):
        rename_file(own, sha256, "still mine")
        remove_file(own, sha256)
    assert names(own) == set()


def test_files_together_have_a_limit(own, tmp_path, monkeypatch):
    first, second = saved(tmp_path, "first"), saved(tmp_path, "second", seed=5)
    sha256 = add_centroids(own, first, "first", None).sha256
    monkeypatch.setattr(files, "MAX_KEPT_BYTES", first.stat().st_size + second.stat().st_size - 1)
    with pytest.raises(InputError, match="remove one"):
        add_centroids(own, second, "second", None)
    assert names(own) == {"first"}
    remove_file(own, sha256)
    add_centroids(own, second, "second", None)
    assert names(own) == {"second"}
