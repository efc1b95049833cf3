"""The run an empty database begins with: one for all visitors, its failure kept until a retry."""

from __future__ import annotations

import pytest

from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.first_run import FirstRun, check_first_run
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from tests.explorer.usecases.conftest import changes

pytestmark = pytest.mark.slow


@pytest.fixture
def empty(tmp_path):
    return Service(tmp_path / "runs.duckdb")


def test_visitors_share_one_run_and_nothing_starts_when_there_is_one(empty, model_folder):
    request = AnalyzeRequest(model=model_folder, centroids="random", max_tokens=64, repeats=1)
    job = empty.part(FirstRun).job(request)
    assert empty.part(FirstRun).job(request) is job
    stages = [(each.stage, each.fraction) for each in changes(job)]
    assert job.state == "done", job.message
    fractions = [fraction for _, fraction in stages]
    assert fractions == sorted(fractions)
    assert [run["run_id"] for run in list_runs(empty.database)] == [job.result]
    assert empty.part(FirstRun).job(request) is None


def test_a_failure_is_kept_until_a_retry(empty, model_folder, tmp_path):
    broken = AnalyzeRequest(model=str(tmp_path), centroids="random", max_tokens=64, repeats=1)
    failed = empty.part(FirstRun).job(broken)
    assert failed.wait(60)
    assert failed.state == "failed"
    assert "cannot be loaded" in failed.message
    assert empty.part(FirstRun).job(broken) is failed
    again = empty.part(FirstRun).job(AnalyzeRequest(model=model_folder, centroids="random", max_tokens=64), retry=True)
    assert again.wait(120)
    assert again.state == "done", again.message


@pytest.mark.parametrize("names", [{"model": "who-knows"}, {"centroids": "nowhere.safetensors"}])
def test_names_of_nothing_are_refused_before_the_page_is_served(empty, names):
    with pytest.raises(InputError, match=next(iter(names.values()))):
        check_first_run(empty, AnalyzeRequest(**names))
    check_first_run(empty, AnalyzeRequest())
