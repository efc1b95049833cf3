"""Files the export dialog makes."""

from __future__ import annotations

import json
import time

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from focus_explorer.cli.main import main
from focus_explorer.errors import InputError
from focus_explorer.ui.downloads import files
from focus_explorer.ui.downloads.request import read_request
from focus_explorer.ui.requests.dispatch import dispatch


def made(service, question):
    answer = dispatch(service, {"what": "export_start", **question})
    for _ in range(400):
        if answer["job"]["state"] not in ("waiting", "running"):
            return answer
        time.sleep(0.05)
        answer = dispatch(service, {"what": "export_state", "id": answer["id"]})
    raise AssertionError("never made")


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
    request = read_request(service, question)
    words = request.command(service.database.path).split()
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
        dispatch(service, {"what": "export_state", "id": first["id"]})
