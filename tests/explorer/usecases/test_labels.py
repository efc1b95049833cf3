"""Runs are named, tagged, deleted and brought back, on the command line and in the database."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from focus_explorer.cli.main import main
from focus_explorer.errors import DeletedRunError, InputError, NotFoundError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.labels import (
    all_runs,
    change_tags,
    clean_tags,
    delete_run,
    deleted_runs,
    label_run,
    purge_deleted,
    purge_expired,
    undelete_run,
)
from focus_explorer.usecases.runs import list_runs, run_summary
from focus_explorer.usecases.service import Service
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
