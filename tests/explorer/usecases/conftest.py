"""A database with two runs of one text, and how to wait for a comparison."""

from __future__ import annotations

import time

import pytest

from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_explorer.web.gradio_internals import import_gradio
from tests.explorer.conftest import TEXT

import_gradio()  # before a test imports it in twice the time


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory, model_folder):
    """A service of its own with two runs of one text at different settings."""
    service = Service(tmp_path_factory.mktemp("compare") / "runs.duckdb")
    settings = {"model": model_folder, "centroids": "random", "repeats": 1, "max_tokens": 120}
    first = analyze(service, TEXT, AnalyzeRequest(**settings, top_k=1, window=8))
    second = analyze(service, TEXT, AnalyzeRequest(**settings, top_k=2, window=4))
    analyze(service, TEXT, AnalyzeRequest(**settings | {"max_tokens": 90}))
    return service, first, second


def wait_for_job(ask, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = ask()
        if answer["job"]["state"] not in ("waiting", "running", "stopping"):
            return answer
        time.sleep(0.05)
    raise AssertionError("the job did not end")


def changes(job):
    """The job now and after each change that is seen, for the last time when it has ended."""
    seen = -1
    while True:
        live, version = job.live, job.version
        if version != seen or not live:
            seen = version
            yield job
        if not live:
            return
        time.sleep(0.001)
