"""A training's film: every frame has the groups that a run with that file would have."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import sample_text
from focus_explorer.usecases.training import film
from focus_explorer.usecases.training.film import common_places, kept_files
from focus_explorer.usecases.training.processes import Trainings
from focus_explorer.usecases.training.request import snapshot_of
from focus_runtime.budget import HeadException
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow
TOKENS = 60


@pytest.fixture(scope="module")
def trained(tmp_path_factory, model_folder):
    """A database with one training of six steps that kept two files on the way, and what was trained."""
    folder = tmp_path_factory.mktemp("film")
    (folder / "text.txt").write_text(TEXT)
    words = (
        f"--groups 3 --routing-dim 4 --top-k 2 --window 8 --steps 6 --seq-len 32 --snapshots 2 --model {model_folder}"
    )
    command = ["train", "--text", str(folder / "text.txt"), "--out", str(folder / "mine.safetensors")]
    assert main([*command, "--db", str(folder / "runs.duckdb"), *words.split()]) == 0
    return folder


@pytest.fixture
def trainings(trained, monkeypatch):
    monkeypatch.setattr(film, "TOKENS", TOKENS)
    return Trainings(Service(trained / "runs.duckdb"))


def bytes_of(text):
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8)


def test_every_frame_has_the_groups_of_a_run_with_its_file(trainings, trained):
    service = trainings.service
    [row] = trainings.rows()
    made = trainings.film(row["training_id"], None, "Novel")
    assert (made["steps"], made["waiting"]) == ([2, 4, 6], 0)
    assert made["layer"] in made["layers"]
    assert (made["num_groups"], made["top_k"], made["window"]) == (3, 2, 8)
    tops = bytes_of(made["top"]).reshape(3, TOKENS)
    membership = bytes_of(made["membership"]).reshape(3, TOKENS)
    paths = [snapshot_of(row["out"], 2), snapshot_of(row["out"], 4), Path(row["out"])]
    for frame, path in enumerate(paths):
        request = AnalyzeRequest(
            model=row["model_id"], centroids=str(path), device="cpu", dtype=row["dtype"], max_tokens=TOKENS
        )
        run_id = analyze(service, sample_text("Novel"), request)
        rows = fetch(service.database, "tops", run_id=run_id)
        rows = rows.filter(np.equal(rows["layer"].to_numpy(), made["layer"])).sort_by("position")
        np.testing.assert_array_equal(tops[frame], rows["top_group"].to_numpy())
        assert ((membership[frame] >> tops[frame]) & 1).all()
        assert np.bitwise_count(membership[frame]).tolist() == [2] * TOKENS
    assert len(bytes_of(made["places"])) == 3 * TOKENS * 2 * 2
    assert 0 < made["spread"] <= 1


def test_files_are_read_some_at_a_time_and_once(trainings, monkeypatch):
    monkeypatch.setattr(film, "SECONDS_OF_WORK", 0.0)
    read = []
    frame_of = film._frame
    monkeypatch.setattr(film, "_frame", lambda model, path, ids: read.append(path.name) or frame_of(model, path, ids))
    [row] = trainings.rows()
    answers = [trainings.film(row["training_id"], None, "Novel") for _ in range(4)]
    assert [(len(made["steps"]), made["waiting"]) for made in answers] == [(1, 2), (2, 1), (3, 0), (3, 0)]
    assert read == ["mine.step-000002.safetensors", "mine.step-000004.safetensors", "mine.safetensors"]
    other = trainings.film(row["training_id"], answers[0]["layers"][0], "Novel")
    assert (other["layer"], len(read)) == (answers[0]["layers"][0], 3)  # another layer needs no file again
    trainings.film(row["training_id"], None, "French")
    assert len(read) == 4  # another text does


def test_what_has_no_film_is_said(trainings, trained, tmp_path):
    [row] = trainings.rows()
    with pytest.raises(NotFoundError, match="there is no sample text 'Tale'"):
        trainings.film(row["training_id"], None, "Tale")
    with pytest.raises(NotFoundError, match="no groups in layer 99"):
        trainings.film(row["training_id"], 99, "Novel")
    with pytest.raises(NotFoundError, match="there is no training"):
        trainings.film("nope", None, "Novel")
    with pytest.raises(InputError, match="ran on another machine"):
        kept_files(row | {"host": "elsewhere"})
    with pytest.raises(InputError, match="trains the model's weights too"):
        kept_files(row | {"kind": "full"})
    with pytest.raises(InputError, match=r"kept no files on the way.*--snapshots"):
        kept_files(row | {"out": str(tmp_path / "none.safetensors"), "usable": False})
    with pytest.raises(InputError, match=r"kept 1 of its files so far.*wait"):
        kept_files(row | {"step": 2, "status": "running", "usable": False})
    with pytest.raises(InputError, match="has other weights than when mine was trained"):
        trainings.films.payload(row | {"model_fingerprint": "other"}, None, "Novel")


def test_a_film_says_whether_heads_have_settings_of_their_own(trainings, tmp_path):
    [row] = trainings.rows()
    assert trainings.films.payload(row, None, "Novel")["has_budget"] is False
    at_once = tmp_path / "budget.safetensors"
    for step, path in kept_files(row):
        centroids = load_centroids(path)
        budget = (HeadException(layer=1, head=0, full=True),)
        target = at_once if step == row["step"] else snapshot_of(at_once, step)
        save_centroids(replace(centroids, config=centroids.config.replace(budget=budget)), target)
    assert trainings.films.payload(row | {"out": str(at_once)}, None, "Novel")["has_budget"] is True


def test_a_film_has_the_window_of_the_files_and_not_that_of_their_training(trained, monkeypatch):
    monkeypatch.setattr(film, "TOKENS", TOKENS)
    command = ["train", "--text", str(trained / "text.txt"), "--out", str(trained / "wide.safetensors")]
    words = "--groups 3 --routing-dim 4 --window 20 --train-window 8 --steps 2 --seq-len 32 --snapshots 1"
    database = trained / "wide.duckdb"
    [row] = Trainings(Service(trained / "runs.duckdb")).rows()
    assert main([*command, "--db", str(database), "--model", row["model_id"], *words.split()]) == 0
    trainings = Trainings(Service(database))
    [row] = trainings.rows()
    assert row["config"]["window"] == 8
    assert (row["settings"]["train_window"], row["settings"]["result_window"]) == (8, 20)
    assert load_centroids(row["out"]).config.window == 20
    assert trainings.film(row["training_id"], None, "Novel")["window"] == 20


def test_files_of_an_earlier_training_of_that_name_are_left_out_and_of_many_some_are_taken(trainings, monkeypatch):
    [row] = trainings.rows()
    assert [step for step, _ in kept_files(row)] == [2, 4, 6]
    monkeypatch.setattr(film, "MOST_FRAMES", 2)
    assert [step for step, _ in kept_files(row)] == [2, 6]
    later = row | {"created_at": row["created_at"].replace(year=row["created_at"].year + 1)}
    with pytest.raises(InputError, match="kept no files"):
        kept_files(later | {"usable": False})


def test_places_are_the_plane_of_the_largest_variance(fresh_seed):
    random = np.random.default_rng(fresh_seed)
    probabilities = random.dirichlet(np.ones(5), size=(3, 40)).astype(np.float32)
    places, spread = common_places(probabilities)
    points = np.sqrt(probabilities.astype(np.float64)).reshape(-1, 5)
    points -= points.mean(axis=0)
    left, values, _ = np.linalg.svd(points, full_matrices=False)
    expected = left[:, :2] * values[:2]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(np.abs(places.reshape(-1, 2)), np.abs(expected) / scale, atol=1e-9)
    assert spread == pytest.approx((values[:2] ** 2).sum() / (values**2).sum())
    again, _ = common_places(probabilities[::-1].copy())
    np.testing.assert_allclose(again[::-1], places, atol=1e-9)  # no sign by chance


@pytest.mark.parametrize("groups", [1, 2])
def test_few_groups_have_places_too(groups):
    probabilities = np.full((2, 4, groups), 1 / groups, dtype=np.float32)
    places, spread = common_places(probabilities)
    assert places.shape == (2, 4, 2)
    assert np.abs(places).max() < 1e-6  # rounding is not drawn large
    assert spread == 1.0


def test_more_than_eight_groups_take_more_bytes():
    sets = np.array([[1 | 1 << 8, 1 << 15 | 1 << 3]])
    assert film._bytes_of(sets, 16).tolist() == [[[1, 1], [8, 128]]]
    assert film._bytes_of(sets & 0xFF, 8).tolist() == [[[1], [8]]]
