"""Explained tokens of a stored run: measured with the run's own setting, kept, exported and refused in words."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from focus_explorer.data.parts import executed
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import Cancelled, InputError, NotFoundError
from focus_explorer.exports.tables.write import write_table
from focus_explorer.usecases.compare.missing_links import explain_token, measured_links, most_hurt
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from focus_explorer.web.requests.table import API
from tests.explorer.usecases.conftest import wait_for_job

pytestmark = pytest.mark.slow


def test_a_token_is_explained_in_the_runs_own_setting_and_kept(two_runs, tmp_path):
    service, first, _ = two_runs
    token = most_hurt(service, first)
    found = explain_token(service, first, token)
    stored = {
        row["mode"]: row["nll"]
        for row in fetch(service.database, "losses", run_id=first).to_pylist()
        if row["position"] == token
    }
    assert found["nll_full"] == pytest.approx(stored["full"], abs=1e-4)
    assert found["nll_focus"] == pytest.approx(stored["focus"], abs=1e-4)
    assert stored["focus"] > stored["full"]
    verified = [link for link in found["links"] if link["nll"] is not None]
    assert 1 <= len(verified) <= 10
    assert found["nll_together"] is not None
    groups = {
        layer: parts[0] for layer, parts in executed(service.database, fetch_run(service.database, first)).items()
    }
    for link in found["links"]:
        own = groups[link["layer"]]
        assert link["query"] < token
        assert link["query"] - link["key"] > own.part.rule.window
        assert link["key"] >= own.part.rule.num_sinks
        assert not own.membership[link["query"]] & own.membership[link["key"]]
        assert link["random_keeps"] in (True, False)
        assert link["predicted"] < 0
    assert measured_links(Service(service.database.path), first, token) == {"tokens": [token], "explained": found}
    again = explain_token(service, first, token)  # replaces what was stored
    assert [link["predicted"] for link in again["links"]] == [link["predicted"] for link in found["links"]]
    table = pyarrow.parquet.read_table(write_table(service.database, first, "missing_links", "parquet", tmp_path / "l"))
    assert table.num_rows == len(found["links"])
    pieces = fetch(service.database, "pieces", run_id=first)["piece"].to_pylist()
    assert table["query_piece"].to_pylist() == [pieces[link["query"]] for link in found["links"]]
    for name in ("latex", "markdown", "csv", "json"):
        assert write_table(service.database, first, "missing_links", name, tmp_path / name).stat().st_size
    answer = API["missing_links"].for_programs(service)(first, token)
    assert json.loads(json.dumps(answer))["links"] == again["links"]


def test_the_page_starts_it_and_polls(two_runs):
    service, _, second = two_runs
    assert dispatch(service, {"what": "compare_links", "run": second, "token": 60})["explained"] is None
    dispatch(service, {"what": "compare_links_start", "run": second, "token": 60})
    answer = wait_for_job(lambda: dispatch(service, {"what": "compare_links", "run": second, "token": 60}))
    assert answer["job"]["state"] == "done"
    assert answer["explained"]["token"] == 60
    assert answer["tokens"] == [60]


def test_stopping_keeps_nothing(two_runs):
    service, _, second = two_runs
    stages = []
    with pytest.raises(Cancelled):
        explain_token(service, second, 40, progress=lambda s, f: stages.append(s), cancelled=lambda: len(stages) > 4)
    assert 40 not in measured_links(service, second, None)["tokens"]


@pytest.mark.parametrize("token", [0, -3, 120, 10**9])
def test_a_token_that_cannot_be_explained_is_refused(two_runs, token):
    service, first, _ = two_runs
    for call in (
        lambda: explain_token(service, first, token),
        lambda: dispatch(service, {"what": "compare_links_start", "run": first, "token": token}),
    ):
        with pytest.raises(InputError, match="1 to 119"):
            call()


def test_tokens_far_into_a_long_text_are_refused_with_the_limit(two_runs, monkeypatch):
    service, first, _ = two_runs
    monkeypatch.setattr("focus_explorer.usecases.compare.missing_links.MOST_TOKENS", 50)
    with pytest.raises(InputError, match="first 50 tokens"):
        explain_token(service, first, 60)
    assert most_hurt(service, first) <= 50


def test_a_run_that_is_not_there_is_named(two_runs):
    service, _, _ = two_runs
    with pytest.raises(NotFoundError, match="no-such-run"):
        API["missing_links"].for_programs(service)("no-such-run", 3)
