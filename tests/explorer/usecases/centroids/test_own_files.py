"""Uploaded centroid files: the same one again, renamed, removed, another user's, too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.centroids import files
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.centroids.files import add_centroids, kept_folder, uploaded_centroids
from focus_explorer.usecases.centroids.own_files import remove_file, rename_file
from focus_explorer.usecases.run_model import lease_run_model, run_centroids
from focus_explorer.usecases.runs import run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import acting_as
from focus_runtime.assets import SHIPPED_CENTROIDS, asset_path
from focus_runtime.config import FocusConfig
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.routing.centroids import random_centroids
from tests.explorer.conftest import TEXT
from tests.helpers import build_model

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
        remove_file(own, files.shipped_centroids()[0]["sha256"])
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
