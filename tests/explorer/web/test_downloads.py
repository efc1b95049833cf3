"""Files the export dialog makes."""

from __future__ import annotations

import json
import time

import pytest
import scipy.sparse
from starlette.applications import Starlette
from starlette.testclient import TestClient

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError
from focus_explorer.exports.kinds import FileRequest, read_request
from focus_explorer.web import downloads as files
from focus_explorer.web.requests.dispatch import dispatch


def made(service, question):
    answer = dispatch(service, {"what": "export_start", **question})
    for _ in range(400):
        if answer["job"]["state"] not in ("waiting", "running"):
            return answer
        time.sleep(0.05)
        answer = dispatch(service, {"what": "export_state", "id": answer["id"]})
    raise AssertionError("never made")


def named(service, question):
    """The file that a question of the page names."""
    return read_request(
        service, FileRequest.read({name.replace("run", "run_id"): one for name, one in question.items()})
    )


def test_a_file_is_fetched_by_its_token_alone_and_has_the_bytes_of_the_command(service, run_id, tmp_path):
    question = {"run": run_id, "kind": "table", "name": "groups", "format": "json"}
    answer = made(service, question)
    client = TestClient(Starlette(routes=files.routes(service)))
    fetched = client.get(f"/{answer['file']['address']}")
    assert fetched.status_code == 200
    assert len(fetched.content) == answer["file"]["bytes"]
    assert answer["file"]["name"] in fetched.headers["content-disposition"]
    for bad in ("", "x", "%2e%2e%2fruns.duckdb", f"../{answer['id']}"):
        assert client.get(f"/{files.ADDRESS}/{bad}").status_code == 404
    request = named(service, question)
    words = request.command(service.database.path).split()
    words[words.index("--out") + 1] = str(tmp_path / "groups.json")
    assert main(words[1:]) == 0
    assert (tmp_path / "groups.json").read_bytes() == fetched.content
    assert {line["run_id"] for line in json.loads(fetched.content)} == {run_id}


MASK = {"kind": "mask", "format": "npz", "layer": 1}


def test_a_mask_has_the_bytes_of_its_command(service, run_id, tmp_path):
    question = {**MASK, "run": run_id, "first": "20", "last": " 89 "}
    answer = made(service, question)
    assert answer["file"]["name"] == f"{run_id}-mask-layer1-rows20-90.npz"
    words = named(service, question).command(service.database.path).split()
    assert words[words.index("--rows") + 1] == "20:90"
    words[words.index("--out") + 1] = str(tmp_path / "mask.npz")
    assert main(words[1:]) == 0
    fetched = service.part(files.Downloads).path(answer["id"])
    assert fetched.read_bytes() == (tmp_path / "mask.npz").read_bytes()
    assert set(scipy.sparse.load_npz(fetched).tocoo().row.tolist()) == set(range(20, 90))


def test_a_mask_of_heads_that_differ_needs_one_and_its_command_names_it(service, budget_run):
    question = {**MASK, "run": budget_run, "first": "0", "last": "20"}
    with pytest.raises(InputError, match=r"the heads of layer 1 differ \(head 0: .* full attention\); choose one"):
        named(service, question)
    with pytest.raises(InputError, match="layer 1 has no key-value head 4; expected 0 to 3"):
        named(service, {**question, "head": 4})
    with pytest.raises(InputError, match="head is '0'; expected a whole number"):
        named(service, {**question, "head": "0"})
    request = named(service, {**question, "head": 3})
    assert request.file_name == f"{budget_run}-mask-layer1-head3-rows0-21.npz"
    assert "--head 3" in request.command(service.database.path)
    alike = named(service, {**question, "layer": 2, "head": 3})
    assert alike.head is None
    assert "--head" not in alike.command(service.database.path)


def test_a_mask_of_the_whole_text_names_no_rows(service, run_id):
    last = fetch_run(service.database, run_id)["num_tokens"] - 1
    request = named(service, {**MASK, "run": run_id, "format": "parquet", "first": "0", "last": str(last)})
    assert request.rows is None
    assert request.file_name == f"{run_id}-mask-layer1.parquet"
    assert "--rows" not in request.command(service.database.path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": "x"}, r"the first query is 'x'; expected a token's number, 0 to \d+"),
        ({"last": ""}, r"the last query is empty; expected a token's number, 0 to \d+"),
        ({"last": "999999"}, r"the last query is '999999'; expected a token's number, 0 to \d+"),
        ({"first": "-1"}, r"the first query is '-1'"),
        ({"first": "٣"}, r"the first query is '٣'"),
        ({"first": "30"}, "the first query, 30, comes after the last, 20; exchange them"),
        ({"layer": 99}, "no layer 99"),
        ({"layer": None}, "the layer is None"),
        ({"format": "pdf"}, "there is no format 'pdf'"),
    ],
)
def test_a_mask_that_does_not_exist_is_one_line(changes, message, service, run_id):
    with pytest.raises(InputError, match=message):
        named(service, {**MASK, "run": run_id, "first": "10", "last": "20", **changes})


def test_what_cannot_be_made_is_one_line_and_old_files_go(service, run_id):
    failed = made(service, {"run": run_id, "kind": "figure", "name": "quality", "format": "html", "preset": "column"})
    assert failed["job"]["state"] == "failed"
    assert "no comparisons" in failed["job"]["message"]
    assert failed["file"] is None
    first = made(service, {"run": run_id, "kind": "table", "name": "timings", "format": "csv"})
    for _ in range(files.MOST_FILES):
        made(service, {"run": run_id, "kind": "table", "name": "timings", "format": "csv"})
    with pytest.raises(InputError, match="no longer kept"):
        dispatch(service, {"what": "export_state", "id": first["id"]})


def test_an_old_file_is_removed_though_no_other_is_made(service, run_id, monkeypatch):
    monkeypatch.setattr(files, "KEPT_SECONDS", 0.3)
    answer = made(service, {"run": run_id, "kind": "table", "name": "timings", "format": "csv"})
    path = service.part(files.Downloads).path(answer["id"])
    deadline = time.monotonic() + 20
    while path is not None and path.parent.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert service.part(files.Downloads).path(answer["id"]) is None
    with pytest.raises(InputError, match="no longer kept"):
        dispatch(service, {"what": "export_state", "id": answer["id"]})
