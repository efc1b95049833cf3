"""What the page gets of the statistics, and the files its export dialog makes."""

from __future__ import annotations

import json
import time

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from focus_explorer.cli.main import main
from focus_explorer.errors import InputError
from focus_explorer.exports.tables.sources import TABLES, read
from focus_explorer.statistics.run_statistics import statistics_table
from focus_explorer.ui.downloads import files
from focus_explorer.ui.downloads.request import read_request
from focus_explorer.ui.questions.answer import answer
from focus_explorer.ui.tabs.explore import packed


def until_done(service, question):
    for _ in range(200):
        found = answer(service, question)
        if found.get("state") != "computing":
            return found
        time.sleep(0.05)
    raise AssertionError("never answered")


def test_the_page_gets_every_run_and_layer_row_of_the_table(service, run_id):
    found = until_done(service, {"what": "statistics", "run": run_id})
    table = statistics_table(service.database, run_id, "statistics").to_pylist()
    for scope, key in (("run", "run"), ("layer", "layers")):
        stored = [one for one in table if one["scope"] == scope and not one["statistic"].endswith("_minus_random")]
        assert found[key]["statistic"] == [one["statistic"] for one in stored]
        assert found[key]["value"] == pytest.approx([one["value"] for one in stored], rel=1e-5, nan_ok=True)
    assert found["missing"] == {"tags": True, "random": True, "attention": True}
    assert len(found["about"]["notes"]) == 2
    assert found["job"] is None
    assert len(packed(found).body) < 40_000

    layer = found["layers"]["layer"][0]
    groups = until_done(service, {"what": "statistics_layer", "run": run_id, "layer": layer})
    assert set(groups["groups"]["layer"]) == {layer}
    assert set(groups["categories"]["layer"]) == {layer} == set(groups["characteristic"]["layer"])
    pairs = until_done(service, {"what": "statistics_pairs", "run": run_id, "layer": layer})
    assert set(pairs["distances"]["layer"]) == {layer, None}
    assert not pairs["links_measured"]


@pytest.mark.parametrize(
    "question",
    [
        {"what": "statistics", "run": "../../etc"},
        {"what": "statistics_layer", "run": "RUN", "layer": 99},
        {"what": "statistics_layer", "run": "RUN", "layer": "1"},
        {"what": "statistics_agreement", "run": "RUN", "other": "nope"},
        {"what": "export_command", "run": "RUN", "kind": "table", "name": "../x", "format": "csv"},
        {"what": "export_start", "run": "RUN", "kind": "figure", "name": "map", "format": "exe", "preset": "column"},
        {"what": "export_start", "run": "RUN", "kind": "table", "name": "groups", "format": "csv", "layer": 99},
        {"what": "export_start", "run": "RUN", "kind": "everything"},
        {"what": "export_state", "id": "../../etc/passwd"},
    ],
)
def test_bad_questions_are_refused_in_one_line(service, run_id, question):
    question = {key: run_id if value == "RUN" else value for key, value in question.items()}
    with pytest.raises(InputError) as problem:
        until_done(service, question)
    assert "\n" not in str(problem.value)


def made(service, question):
    found = answer(service, {"what": "export_start", **question})
    for _ in range(400):
        if found["job"]["state"] not in ("waiting", "running"):
            return found
        time.sleep(0.05)
        found = answer(service, {"what": "export_state", "id": found["id"]})
    raise AssertionError("never made")


def test_a_file_is_fetched_by_its_token_alone_and_has_the_bytes_of_the_command(service, run_id, tmp_path):
    question = {"run": run_id, "kind": "table", "name": "groups", "format": "json"}
    found = made(service, question)
    client = TestClient(Starlette(routes=files.routes(service)))
    fetched = client.get(f"/{found['file']['address']}")
    assert fetched.status_code == 200
    assert len(fetched.content) == found["file"]["bytes"]
    assert found["file"]["name"] in fetched.headers["content-disposition"]
    for bad in ("", "x", "%2e%2e%2fruns.duckdb", f"../{found['id']}"):
        assert client.get(f"/{files.ADDRESS}/{bad}").status_code == 404
    wanted = read_request(service, question)
    words = wanted.command(service.database.path).split()
    words[words.index("--out") + 1] = str(tmp_path / "groups.json")
    assert main(words[1:]) == 0
    assert (tmp_path / "groups.json").read_bytes() == fetched.content
    assert {line["run_id"] for line in json.loads(fetched.content)} == {run_id}


def test_what_cannot_be_made_is_one_line_and_old_files_go(service, run_id):
    failed = made(service, {"run": run_id, "kind": "figure", "name": "quality", "format": "html", "preset": "column"})
    assert failed["job"]["state"] == "failed"
    assert "no comparisons" in failed["job"]["message"]
    assert failed["file"] is None
    first = made(service, {"run": run_id, "kind": "table", "name": "timings", "format": "csv"})
    for _ in range(files.MOST_FILES):
        made(service, {"run": run_id, "kind": "table", "name": "timings", "format": "csv"})
    with pytest.raises(InputError, match="no longer kept"):
        answer(service, {"what": "export_state", "id": first["id"]})


def test_the_dialog_offers_a_layer_where_a_table_has_layers(service, run_id):
    offered = {
        one["name"]: one["layers"] for one in answer(service, {"what": "export_choices", "run": run_id})["tables"]
    }
    assert offered == {name: "layer" in next(read(service.database, run_id, name)).column_names for name in TABLES}
