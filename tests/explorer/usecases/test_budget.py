"""Budgets as users give them."""

from __future__ import annotations

import json
import re

import pytest

from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.exports.tables.sources import budget_id
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.budget import budget_of, heads_setting, kept_budget
from focus_explorer.usecases.service import Service
from focus_explorer.views.run import config_payload
from focus_runtime.budget import HeadException, budget_name, budget_words
from focus_runtime.config import setting_words

ENTRIES = [{"layer": 3, "top_k": 2, "window": 256}, {"layer": 8, "head": 0, "full": True}, {"layer": 1, "full": True}]


def test_a_file_is_read_and_said_in_words(tmp_path):
    path = tmp_path / "budget.json"
    path.write_text(json.dumps(ENTRIES))
    budget = budget_of(str(path))
    assert budget == (
        HeadException(layer=1, full=True),
        HeadException(layer=3, top_k=2, window=256),
        HeadException(layer=8, head=0, full=True),
    )
    assert (
        budget_words(budget) == "layer 1: full attention; layer 3: top-k 2, window 256; layer 8, head 0: full attention"
    )
    assert budget_of("none") == ()
    assert budget_of(None) is None


def test_a_setting_names_its_budget():
    assert setting_words({"num_groups": 4, "budget": []}) == "K=4"
    assert setting_words({"budget": ENTRIES[:1]}) == "budget of 1 exception (691bb4)"
    others = {"text_sinks": 0.9, "logit_factors": True, "num_sinks": 0, "budget": ENTRIES}
    assert setting_words(others) == (
        "0 sinks, text sinks from a cosine similarity of 0.9, factors of the logits, budget of 3 exceptions (552b7d)"
    )


def test_budgets_of_as_many_exceptions_have_names_of_their_own():
    budgets = [[{"layer": 1, "full": True}], [{"layer": 2, "full": True}], [{"layer": 1, "top_k": 2}]]
    names = [budget_name(budget) for budget in budgets]
    assert len(set(names)) == 3
    for name, budget in zip(names, budgets, strict=True):
        count, digits = re.fullmatch(r"budget of (1 exception) \((\w{6})\)", name).groups()
        assert budget_id(budget).startswith(f"{count} {digits}")
        assert config_payload({"budget": budget})["budget_id"].startswith(digits)
    assert "budget_id" not in config_payload({"budget": []})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the budget .*budget.json: No such file"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"[{", r"is not JSON \(line 1: .*expected a list of exceptions"),
        (b"[" * 100_000, "is not JSON"),
        (b"[" + b"1" * 5000 + b"]", "is not JSON"),
        (b'{"layer": 1}', "budget.json: the budget is dict; expected a list"),
        (b"[3]", "the budget holds int"),
        (b'[{"layer": 1}]', "says nothing about layer 1"),
        (b'[{"head": 1, "full": true}]', "an exception without a layer"),
        (b'[{"layer": 1, "heads": 2, "full": true}]', "unknown setting 'heads'"),
        (b'[{"layer": 1, "full": true}, {"layer": 1, "top_k": 2}]', "names layer 1 twice"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path, content, message):
    path = tmp_path / "budget.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        budget_of(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_heads_are_the_files_alike_or_a_runs(model_folder, tmp_path):
    service = Service(tmp_path / "runs.duckdb")
    budget = (HeadException(layer=0, window=3),)
    own = {"budget": budget, "window_growth": (4, 9)}
    how = AnalyzeRequest(model=model_folder, centroids="random", window=8, max_tokens=20, repeats=1, **own)
    run_id = analyze(service, "The cat sat on the mat and left. " * 3, how)
    assert heads_setting(service.database, "file") == {}
    assert heads_setting(service.database, "alike") == {"budget": (), "window_growth": (1, 1)}
    assert heads_setting(service.database, run_id) == own
    with pytest.raises(NotFoundError, match="there is no run 'nobody'"):
        heads_setting(service.database, "nobody")


def test_readers_of_other_settings_are_told_what_heads_keep():
    assert kept_budget({}) == kept_budget({"budget": []}) == ""
    assert "budget of 1 exception (691bb4) is" in kept_budget({"budget": ENTRIES[:1]})
    assert "full" not in kept_budget({"budget": ENTRIES[:1]})
    assert "3 exceptions" in kept_budget({"budget": ENTRIES})
    assert "2 of them full attention, without groups too" in kept_budget({"budget": ENTRIES})
