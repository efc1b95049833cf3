"""`focus-explorer export` lists what there is and starts quickly."""

from __future__ import annotations

import pytest

from focus_explorer.cli.main import main
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import FORMATS
from tests.test_imports import HEAVY, MAIN, imported


@pytest.mark.slow
def test_an_export_imports_nothing_heavy(service, run_id, tmp_path):
    out = tmp_path / "groups.csv"
    words = ["export", run_id, "--what", "groups", "--out", str(out), "--db", str(service.database.path)]
    modules, _ = imported(MAIN, *words)
    assert not modules & HEAVY
    assert len(out.read_text().splitlines()) > 2


def test_the_list_names_tables_and_formats(capsys):
    with pytest.raises(SystemExit) as end:
        main(["export", "--list"])
    assert not end.value.code
    listed = capsys.readouterr().out
    assert all(name in listed for name in [*TABLES, *FORMATS])
