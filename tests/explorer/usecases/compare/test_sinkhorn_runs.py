"""Runs whose groups depend on the whole text: what reads its beginning alone is refused, in one sentence."""

from __future__ import annotations

import pytest

from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.compare import costs, what_if
from focus_explorer.usecases.compare.costs import explain_token, measure_heads
from focus_explorer.usecases.compare.what_if import checked_changes
from focus_explorer.usecases.generate import check_generation
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow
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
