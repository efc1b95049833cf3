"""Runs are named, tagged, deleted and brought back, on the command line and in the database."""

from __future__ import annotations

import json
import shutil
from shutil import copy2

import numpy as np
import pytest

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import DeletedRunError, InputError, NotFoundError
from focus_explorer.exports.tables.write import table
from focus_explorer.statistics.group_names import run_names, trait_words
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.labels import (
    all_runs,
    change_tags,
    clean_tags,
    delete_run,
    deleted_runs,
    group_names,
    label_run,
    name_group,
    purge_deleted,
    purge_expired,
    undelete_run,
)
from focus_explorer.usecases.pairs import PairViews
from focus_explorer.usecases.runs import list_runs, run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from focus_runtime.store.measurements import write_projection
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory, model_folder):
    """A database with two runs, of which each test gets a copy."""
    service = Service(tmp_path_factory.mktemp("labels") / "runs.duckdb")
    request = AnalyzeRequest(model=model_folder, centroids="random", window=4, repeats=1, max_tokens=40)
    for text in (TEXT, TEXT[::-1]):
        analyze(service, text, request)
    return service.database.path


@pytest.fixture
def stored(tmp_path, two_runs):
    """A service over a database of its own with two runs, newest first."""
    service = Service(shutil.copy(two_runs, tmp_path / "runs.duckdb"))
    return service, [row["run_id"] for row in list_runs(service.database)]


def test_distances_and_masks_of_a_deleted_run_are_not_answered_from_what_was_kept(stored):
    service, (newest, _) = stored
    views = PairViews(service)
    asked = (lambda: views.distance_mean(newest), lambda: views.tile(newest, 0, (0, 9), (0, 9)))
    for ask in asked:
        assert ask()
    delete_run(service, newest)
    for ask in asked:
        with pytest.raises(DeletedRunError):
            ask()


def test_a_label_changes_only_what_is_given(stored):
    service, (newest, other) = stored
    assert label_run(service, newest, name="  My \n run ", tags=["b", " a ", "b", ""])["tags"] == ["a", "b"]
    assert label_run(service, newest, note="why") == {
        "run_id": newest,
        "name": "My run",
        "note": "why",
        "tags": ["a", "b"],
    }
    assert change_tags(service, newest, ["c"], ["a"])["tags"] == ["b", "c"]
    untouched = next(row for row in list_runs(service.database) if row["run_id"] == other)
    assert (untouched["name"], untouched["note"], untouched["tags"]) == ("", "", [])


def test_a_deleted_run_is_hidden_and_comes_back_with_its_labels(stored):
    service, (newest, other) = stored
    label_run(service, newest, name="kept")
    delete_run(service, newest)
    assert [row["run_id"] for row in list_runs(service.database)] == [other]
    assert [row["run_id"] for row in deleted_runs(service)] == [newest]
    with pytest.raises(
        DeletedRunError, match=f"was deleted; bring it back with `focus-explorer runs undelete {newest}"
    ):
        run_summary(service.database, newest)
    purge_expired(service)  # not yet 30 days
    undelete_run(service, newest)
    assert list_runs(service.database)[0]["name"] == "kept"
    assert run_summary(service.database, newest)["run_id"] == newest


def test_purging_leaves_no_row_of_the_run_and_all_of_the_others(stored):
    service, (newest, other) = stored
    meta = {"method": "UMAP", "parameters": {"tokens": 40}, "seed": 0, "trustworthiness": None, "num_centroids": 4}
    for run_id in (newest, other):
        write_projection(service.database, run_id, 0, np.zeros((44, 2)), meta)

    def counts(run_id):
        with service.database.read() as connection:
            tables = connection.execute(
                "SELECT table_name FROM information_schema.columns WHERE column_name = 'run_id' ORDER BY 1"
            ).fetchall()
            counted = {
                table: connection.execute(f"SELECT count(*) FROM {table} WHERE run_id = ?", [run_id]).fetchone()[0]
                for (table,) in tables
            }
            counted["projections"] = connection.execute(
                "SELECT count(*) FROM projections WHERE projection_id LIKE ?", [f"{run_id}%"]
            ).fetchone()[0]
        return counted

    before = counts(other)
    assert before["projections"] > 0 < counts(newest)["projections"]
    delete_run(service, newest)
    assert purge_deleted(service, days=1) == []
    assert purge_deleted(service, days=0) == [newest]
    assert set(counts(newest).values()) == {0}
    assert counts(other) == before
    with pytest.raises(NotFoundError):
        undelete_run(service, newest)
    assert [row["run_id"] for row in all_runs(service)] == [other]


@pytest.mark.parametrize("tags", [["a,b"], ["x" * 41], [str(i) for i in range(21)]])
def test_bad_tags_are_refused(tags):
    with pytest.raises(InputError):
        clean_tags(tags)


def test_unknown_runs_and_long_names_are_refused(stored):
    service, (newest, _) = stored
    for work in (
        lambda: label_run(service, "nope", name="x"),
        lambda: delete_run(service, "nope"),
        lambda: change_tags(service, "nope", ["x"]),
    ):
        with pytest.raises(NotFoundError, match="nope"):
            work()
    with pytest.raises(InputError, match="121 characters"):
        label_run(service, newest, name="x" * 121)
    with pytest.raises(InputError, match="days"):
        purge_deleted(service, days=-1)


def test_the_command_line(stored, capsys):
    service, (newest, other) = stored
    db = ["--db", str(service.database.path)]

    def run(*arguments):
        status = main(["runs", *arguments])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    assert run("rename", newest, "First try", *db) == (0, f"{newest} is named 'First try'\n")
    assert run(*db, "tag", newest, "paper", "draft")[0] == 0  # before the action it counts too
    assert run("tag", newest, "--remove", "draft", *db) == (0, f"{newest} has the tags paper\n")
    assert run("note", newest, "see figure 2", *db)[0] == 0
    listed = run(*db)[1]
    assert "First try  [paper]" in listed
    assert json.loads(run("--json", *db)[1])[0]["note"] == "see figure 2"
    assert "brings it back" in run("delete", newest, *db)[1]
    assert newest not in run(*db)[1]
    assert newest in run("--deleted", *db)[1]
    assert run("undelete", newest, *db)[0] == 0
    assert newest in run(*db)[1]
    assert run("delete", other, *db)[0] == 0
    assert run("purge", *db) == (0, "1 deleted run removed for good\n")
    status, text = run("delete", other, *db)
    assert status == 2
    assert text.startswith("error: there is no run")
    assert text.count("\n") == 1


@pytest.fixture
def planted(service, run_id, tmp_path):
    """A copy of the run whose layer 0 has the spaces in group 1, and whose layer 1 goes by place, without regard."""
    with service.database.read():
        copy = tmp_path / "planted.duckdb"
        copy2(service.database.path, copy)
    own = Service(copy)
    with own.database.write() as connection:
        connection.execute(
            "UPDATE assignments SET top_group = CASE WHEN position IN "
            "(SELECT position FROM tokens WHERE run_id = $run AND piece = ' ') THEN 1 ELSE 0 END "
            "WHERE run_id = $run AND layer = 0",
            {"run": run_id},
        )
        connection.execute(
            "UPDATE assignments SET top_group = position % 4 WHERE run_id = $run AND layer = 1", {"run": run_id}
        )
    return own


def test_a_planted_group_is_named_and_its_evidence_counted(planted, run_id):
    answer = group_names(planted.database, run_id)
    pieces = fetch(planted.database, "tokens", run_id=run_id)["piece"].to_pylist()
    first = answer["names"][0][1]
    assert first["name"] in ("mostly “␣”", "mostly spaces and line ends")
    assert first["evidence"][0]["share"] == 1
    assert first["evidence"][0]["base"] == pytest.approx(pieces.count(" ") / len(pieces), abs=0.02)
    assert first["given"] is None
    assert [one["name"] for one in answer["names"][1]].count("") >= 3  # places modulo four say nothing of a token
    assert answer["random"] == [None, None]
    assert first["evidence"][0]["p_value"] < 1e-6


def test_what_random_centroids_reach_must_be_exceeded(planted, run_id):
    """The baseline has the same groups, so nothing exceeds it."""
    config = {"run": run_id}
    with planted.database.write() as connection:
        connection.execute(
            "INSERT INTO baseline_assignments SELECT run_id, layer, position, membership, top_group, "
            "confidence, entropy FROM assignments WHERE run_id = $run",
            config,
        )
        connection.execute("INSERT INTO baselines VALUES (?, 3, 100, 9.5, now())", [run_id])
    answer = group_names(planted.database, run_id)
    assert answer["random"][0] == answer["names"][0][1]["evidence"][0]["phi"]
    assert {one["name"] for row in answer["names"] for one in row} == {""}


@pytest.mark.slow
def test_names_of_people_belong_to_the_centroid_file(planted, run_id):
    given = name_group(planted, run_id, 1, 2, "  my   letters ")
    assert given["given"] == "my letters"
    with planted.database.read() as connection:
        sha256 = connection.execute("SELECT centroids_sha256 FROM group_names").fetchall()
    assert sha256 == [(fetch_run(planted.database, run_id)["centroids_sha256"],)]
    assert group_names(planted.database, run_id)["names"][1][2]["given"] == "my letters"
    assert name_group(planted, run_id, 1, 2, "other")["given"] == "other"
    assert name_group(planted, run_id, 1, 2, " ")["given"] is None


def test_what_cannot_be_named_is_refused(planted, run_id):
    with pytest.raises(InputError, match="61 characters"):
        name_group(planted, run_id, 0, 0, "x" * 61)
    for layer, group in ((9, 0), (0, 99), (0, -1)):
        with pytest.raises(InputError, match=f"no group {group} in layer {layer}"):
            name_group(planted, run_id, layer, group, "x")
    with pytest.raises(NotFoundError, match="nope"):
        group_names(planted.database, "nope")
    with pytest.raises(InputError, match="name is 3; expected a text"):
        dispatch(planted, {"what": "name_group", "run": run_id, "layer": 0, "group": 0, "name": 3})


def test_the_table_has_a_row_for_every_group(planted, run_id):
    rows = table(planted.database, run_id, "group_names").to_pylist()
    names = run_names(planted.database, run_id)
    assert [(row["layer"], row["group_index"]) for row in rows] == [
        (layer, group) for layer in names.layers for group in range(len(names.names[0]))
    ]
    planted_row = next(row for row in rows if (row["layer"], row["label"]) == (0, "B"))
    assert planted_row["name"].startswith("mostly")
    assert planted_row["share"] == 1
    assert planted_row["random"] is None


def test_pieces_are_readable():
    assert [trait_words(f"piece:{piece}") for piece in (" a", "\n", '."', "é")] == ["“␣a”", "“\\n”", '“."”', "“é”"]
    assert trait_words("copied") == "repeated pairs of tokens"
