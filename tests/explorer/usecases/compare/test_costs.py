"""What the mask costs by head and by pair, and what is refused of runs whose groups depend on the whole text."""

from __future__ import annotations

import json
from functools import partial

import pyarrow.parquet
import pytest
import torch

from focus_explorer.cli.main import main
from focus_explorer.cli.measures import describe_heads
from focus_explorer.data.parts import executed
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import Cancelled, InputError, NotFoundError
from focus_explorer.exports.tables.write import table, write_table
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.compare import costs, what_if
from focus_explorer.usecases.compare.costs import (
    explain_token,
    measure_heads,
    measured_heads,
    measured_links,
    most_hurt,
)
from focus_explorer.usecases.compare.what_if import checked_changes
from focus_explorer.usecases.generate import check_generation
from focus_explorer.usecases.pairs import measure_attention
from focus_explorer.usecases.run_model import composed_run, lease_run_model
from focus_explorer.usecases.runs import token_ids
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from focus_explorer.web.requests.table import API
from focus_runtime.budget import HeadException
from focus_runtime.measure.loss import final_hidden, token_nll
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


def test_every_measured_head_is_what_its_budget_costs(two_runs):
    service, first, _ = two_runs
    assert measured_heads(service, first) == {"num_tokens": None, "nll_full": None, "nll_focus": None, "heads": []}
    found = measure_heads(service, first, verify=3)
    assert measured_heads(service, first) == found
    run, ids = fetch_run(service.database, first), torch.tensor([token_ids(service.database, first)])
    assert found["num_tokens"] == ids.shape[1]
    measured = [head for head in found["heads"] if head["nll"] is not None]
    assert len(measured) == 3
    assert [head["nll"] for head in measured] == sorted(head["nll"] for head in measured)
    best = sorted(head["estimated"] for head in found["heads"])[:3]
    assert sorted(head["estimated"] for head in measured) == best
    with lease_run_model(service, run) as loaded, composed_run(service, run, loaded) as focus, torch.no_grad():
        model = focus.model

        def loss():
            return token_nll(model, final_hidden(model, ids), ids).double().mean().item()

        assert found["nll_focus"] == pytest.approx(loss(), abs=1e-6)
        with focus.full_attention():
            assert found["nll_full"] == pytest.approx(loss(), abs=1e-6)
        for head in measured:
            alone = HeadException(layer=head["layer"], head=head["head"], full=True)
            with focus.with_config(focus.config.replace(budget=(*focus.config.budget, alone))):
                assert head["nll"] == pytest.approx(loss(), abs=1e-6)
    rows = table(service.database, first, "head_costs").to_pylist()
    assert [(row["layer"], row["head"], row["nll"]) for row in rows] == [
        (head["layer"], head["head"], head["nll"]) for head in found["heads"]
    ]


def test_the_attention_dropped_is_the_mean_of_the_query_heads(two_runs):
    service, first, _ = two_runs
    found = measure_heads(service, first, verify=0)
    assert {head["nll"] for head in found["heads"]} == {head["dropped"] for head in found["heads"]} == {None}
    measure_attention(service, first)
    with service.database.read() as connection:
        rows = connection.execute(
            "SELECT layer, head, dropped FROM attention_mass WHERE run_id = ?", [first]
        ).fetchall()
    shared = len({head for _, head, _ in rows}) // len({head["head"] for head in found["heads"]})
    for cost in measured_heads(service, first)["heads"]:
        own = [dropped for layer, head, dropped in rows if (layer, head // shared) == (cost["layer"], cost["head"])]
        assert cost["dropped"] == pytest.approx(sum(own) / len(own))


def test_stopping_keeps_what_was_stored(two_runs):
    service, _, second = two_runs
    before, stages = measured_heads(service, second), []

    def stop(stage, fraction):
        stages.append(stage)
        if len(stages) > 3:
            raise Cancelled("stopped")

    for work in (partial(measure_heads, service, second), partial(explain_token, service, second, 40)):
        stages.clear()
        with pytest.raises(Cancelled):
            work(progress=stop)
    assert measured_heads(service, second) == before
    assert 40 not in measured_links(service, second, None)["tokens"]


def test_the_command_says_what_is_wrong_and_what_was_found(two_runs, capsys):
    service, first, _ = two_runs
    db = ["--db", str(service.database.path)]
    assert main(["heads", first, "--verify", "-1", *db]) == 2
    assert "--verify is -1" in capsys.readouterr().err
    with pytest.raises(NotFoundError, match="nope"):
        measured_heads(service, "nope")
    assert main(["heads", first, "--verify", "1", "--json", *db]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = describe_heads(found).splitlines()
    assert "nats with full attention" in lines[0]
    assert len(lines) == 3 + min(20, len(found["heads"]))


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
    monkeypatch.setattr("focus_explorer.usecases.compare.costs.MOST_TOKENS", 50)
    with pytest.raises(InputError, match="first 50 tokens"):
        explain_token(service, first, 60)
    assert most_hurt(service, first) <= 50


REFUSED = "used sinkhorn assignment, which looks at the whole text; expected a run with causal assignment"


@pytest.fixture(scope="module")
def sinkhorn_run(service, model_folder):
    how = AnalyzeRequest(model=model_folder, centroids="random", window=4, assignment="sinkhorn", repeats=1)
    return analyze(service, TEXT[:120], how)


def test_a_token_and_a_prompt_are_refused(service, sinkhorn_run):
    with pytest.raises(InputError, match=REFUSED):
        explain_token(service, sinkhorn_run, 40)
    with pytest.raises(InputError, match=REFUSED):
        check_generation(service, sinkhorn_run, "The harbour", 5, 0.0)


def test_heads_and_changes_need_the_whole_text(service, sinkhorn_run, monkeypatch):
    """Which they read where it is short."""
    assert measure_heads(service, sinkhorn_run, verify=1)["heads"]
    assert checked_changes(service, sinkhorn_run, ["full:0"])
    monkeypatch.setattr(costs, "ESTIMATED_TOKENS", 100)
    monkeypatch.setattr(what_if, "MOST_TOKENS", 100)
    with pytest.raises(InputError, match=REFUSED):
        measure_heads(service, sinkhorn_run, verify=1)
    with pytest.raises(InputError, match=REFUSED):
        checked_changes(service, sinkhorn_run, ["full:0"])
