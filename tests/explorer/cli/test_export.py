"""`focus-explorer export` starts quickly."""

from __future__ import annotations

import pytest

from tests.test_imports import HEAVY, MAIN, imported


@pytest.mark.slow
def test_an_export_imports_nothing_heavy(service, run_id, tmp_path):
    out = tmp_path / "groups.csv"
    words = ["export", run_id, "--what", "groups", "--out", str(out), "--db", str(service.database.path)]
    modules, _ = imported(MAIN, *words)
    assert not modules & HEAVY
    assert len(out.read_text().splitlines()) > 2
