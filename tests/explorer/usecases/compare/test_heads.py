"""What the mask costs head by head: against composing every budget anew, kept, exported, stopped, refused in words."""

from __future__ import annotations

import json

import pytest
import torch

from focus_explorer.cli.main import main
from focus_explorer.cli.measures import describe_heads
from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import Cancelled, NotFoundError
from focus_explorer.exports.tables.write import table
from focus_explorer.usecases.compare.heads import measure_heads, measured_heads
from focus_explorer.usecases.pairs import measure_attention
from focus_explorer.usecases.run_model import composed_run, lease_run_model
from focus_explorer.usecases.runs import token_ids
from focus_runtime.budget import HeadException
from focus_runtime.measure.loss import final_hidden, token_nll

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
    before, calls = measured_heads(service, second), []

    def cancelled():
        calls.append(1)
        return len(calls) > 3

    with pytest.raises(Cancelled):
        measure_heads(service, second, cancelled=cancelled)
    assert measured_heads(service, second) == before


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
