"""Analyses on a tiny model and a real database: bad requests, cancelling, notes."""

from __future__ import annotations

import pytest

from focus_explorer.errors import ConfigError, InputError, ModelError, NotFoundError
from focus_explorer.services.analyze import AnalyzeRequest, analyze
from focus_explorer.services.runs import list_runs, run_summary
from focus_runtime.errors import Cancelled
from tests.explorer.conftest import TEXT


@pytest.mark.parametrize(
    ("changes", "error", "part"),
    [
        ({"top_k": 9}, ConfigError, "top_k is 9"),
        ({"top_k": 0}, ConfigError, "top_k is 0"),
        ({"window": -1}, ConfigError, "window is -1"),
        ({"num_sinks": -2}, ConfigError, "num_sinks is -2"),
        ({"assignment": "magic"}, ConfigError, "assignment is 'magic'"),
        ({"max_tokens": 1}, ConfigError, "max_tokens is 1"),
        ({"model": "no-such-model-anywhere"}, ModelError, "no-such-model-anywhere"),
        ({"centroids": "missing.safetensors"}, InputError, "missing.safetensors"),
        ({"centroids": "unheard-of"}, NotFoundError, "unheard-of"),
        ({"centroids": "default"}, InputError, "width 576"),
    ],
)
def test_bad_requests_are_named_and_keep_nothing(service, model_folder, run_id, changes, error, part):
    before = len(list_runs(service.database))
    settings = {"model": model_folder, "centroids": "random", **changes}
    with pytest.raises(error, match=part):
        analyze(service, TEXT, AnalyzeRequest(**settings))
    assert len(list_runs(service.database)) == before


def test_cancelling_keeps_nothing(service, model_folder, run_id):
    before = len(list_runs(service.database))
    with pytest.raises(Cancelled):
        analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids="random"), cancelled=lambda: True)
    assert len(list_runs(service.database)) == before
    assert analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids="random", repeats=1))


def test_cut_and_context_are_noted(service, model_folder):
    run = analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids="random", max_tokens=40, repeats=1))
    notes = " ".join(run_summary(service.database, run)["notes"])
    assert "cut to its first 40" in notes
    assert "no longer than the window" in notes
    assert "estimated" in notes


def test_a_text_beyond_the_context_is_analysed_with_a_warning(service, run_id):
    """The tiny model was made for 256 positions; the text is longer."""
    assert run_summary(service.database, run_id)["num_tokens"] > 256
    notes = " ".join(run_summary(service.database, run_id)["notes"])
    assert "more than the 256 the model was trained for" in notes
    assert "--max-tokens 256" in notes
