"""Two runs compared: random groups against plain definitions, and the numbers of any two runs."""

from __future__ import annotations

import base64
import shutil

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.statistics.agreement import align
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.compare.runs import compare_numbers, compare_runs, partners
from focus_explorer.usecases.labels import delete_run
from focus_explorer.usecases.runs import list_runs, run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from tests.explorer.conftest import TEXT

TABLES = ("runs", "tokens", "layers", "assignments", "losses", "timings", "masks")


@pytest.fixture
def twins(service, run_id, tmp_path, fresh_seed):
    """A database of its own: a run, and the same tokens with random groups and losses, its rows in random order."""
    path = tmp_path / "runs.duckdb"
    shutil.copyfile(service.database.path, path)
    own = Service(path)
    with own.database.write() as connection:
        connection.execute(f"SELECT setseed({fresh_seed % 1000 / 1000})")
        for table in TABLES:
            changes = {
                "assignments": ", CAST(floor(random() * 8) AS INTEGER) AS top_group",
                "losses": ", nll + random() AS nll",
            }.get(table, "")
            connection.execute(
                f"INSERT INTO {table} SELECT * REPLACE ('twin' AS run_id{changes}) FROM {table} "
                f"WHERE run_id = '{run_id}' ORDER BY random()"
            )
    return own, run_id


def test_groups_are_matched_as_from_whole_sorted_rows(twins):
    own, run_id = twins
    compared = compare_runs(own, run_id, "twin")
    own_rows, other = (fetch(own.database, "assignments", run_id=name) for name in (run_id, "twin"))
    tops = np.frombuffer(base64.b64decode(compared["top"]), np.uint8).reshape(len(compared["layers"]), -1)
    assert len(compared["layers"]) == len(set(own_rows["layer"].to_pylist()))
    for number, layer in enumerate(compared["layers"]):
        first, second = (
            rows["top_group"].to_numpy()[rows["layer"].to_numpy() == layer["layer"]].astype(np.int64)
            for rows in (own_rows, other)
        )
        expected = align(first, second, 8, 8)
        assert (layer["names"], layer["overlap"], layer["rand"]) == (expected.names, expected.overlap, expected.rand)
        assert tops[number].tolist() == [expected.names[group] for group in second.tolist()]
    losses = [
        [row["nll"] for row in fetch(own.database, "losses", run_id=name).to_pylist() if row["mode"] == "focus"]
        for name in (run_id, "twin")
    ]
    # as `run_payload` sends those of the run itself: equal losses differ by nothing on the page
    assert compared["losses"] == [None, *np.float32(losses[1]).tolist()]
    assert compared["difference"]["mean"] == pytest.approx(np.mean(losses[1]) - np.mean(losses[0]))


def test_a_deleted_run_is_no_partner(twins):
    own, run_id = twins
    others = [run["run_id"] for run in partners(own, run_id)["runs"]]  # tests before may have added more of this text
    assert "twin" in others
    delete_run(own, "twin")
    assert [run["run_id"] for run in partners(own, run_id)["runs"]] == [name for name in others if name != "twin"]
    with pytest.raises(InputError, match="another text"):
        compare_runs(own, run_id, "twin")


@pytest.mark.slow
def test_runs_of_different_texts_have_their_numbers_side_by_side(twins, model_folder):
    own, run_id = twins
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=2, window=8, num_sinks=2, repeats=1)
    other = analyze(own, TEXT[:60], request)
    numbers = dispatch(own, {"what": "compare_numbers", "run": run_id, "other": other})
    for side, name in (("first", run_id), ("second", other)):
        row = next(run for run in list_runs(own.database) if run["run_id"] == name)
        assert numbers[side] == run_summary(own.database, name) | {"title": row["title"], "name": row["name"]}
    assert numbers["settings_that_differ"] == {"top_k": [1, 2]}
    assert compare_numbers(own, run_id, run_id)["settings_that_differ"] == {}
    with pytest.raises(NotFoundError, match="no run 'nope'"):
        compare_numbers(own, run_id, "nope")
