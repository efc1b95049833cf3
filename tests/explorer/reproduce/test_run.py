"""Every report on a tiny model and its forms on disk."""

from __future__ import annotations

import csv
import json

import pytest

from focus_explorer.reproduce.figure import report_figure
from focus_explorer.reproduce.names import REPORTS
from focus_explorer.reproduce.render import write
from focus_explorer.reproduce.run import find

NEED_HARNESS = {"table1", "table3", "table4"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REPORTS if not name.startswith("figure")])
def test_every_report_is_measured_and_written(name, lab, tmp_path, monkeypatch):
    if name in NEED_HARNESS:
        pytest.importorskip("lm_eval")
        pytest.importorskip("peft")
    monkeypatch.setattr("focus_explorer.reproduce.figure.draw", lambda report: b"<svg/>")
    report = find(name)(lab)
    assert report.name == name
    assert report.rows
    keys = {column.key for column in report.columns}
    empty = {key for key in keys if all(row.get(key) is None for row in report.rows)}
    assert not {key for key in empty if not key.startswith("paper")} - {"short", "long"}  # too little text for these
    for row in report.rows:
        if "ppl" in row and row.get("dominance") is not None:
            assert row["retained"] is not None, "a perplexity is given with dominance and pairs kept"
    assert all(claim.evidence and ("nan" not in claim.evidence or claim.held is None) for claim in report.claims)
    paths = write(report, tmp_path, log="a line\n")
    assert {path.suffix for path in paths} >= {".md", ".csv", ".tex", ".json", ".log"}
    stored = json.loads((tmp_path / f"{name}.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} in JSON"))
    assert len(stored["rows"]) == len(report.rows)
    with (tmp_path / f"{name}.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == len(report.rows)
    if report.figure is not None:
        assert len(report_figure(report).data) == len(report.figure.series)


def test_every_report_has_a_function():
    assert all(callable(find(name)) for name in REPORTS)
