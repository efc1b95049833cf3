"""`focus-explorer runs` starts quickly."""

from __future__ import annotations

import pytest

from tests.test_imports import HEAVY, MAIN, imported


@pytest.mark.slow
def test_the_list_of_runs_imports_nothing_heavy(service, run_id):
    modules, text = imported(MAIN, "runs", "--db", str(service.database.path))
    assert not modules & HEAVY
    assert run_id in text
