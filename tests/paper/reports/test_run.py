"""Every report on a tiny model and its forms on disk."""

from __future__ import annotations

import csv
import json

import pytest

from paper.reports import ablation
from paper.reports.figure import report_figure
from paper.reports.merging import merged
from paper.reports.names import REPORTS, recipes_of
from paper.reports.plan import centroid_trainings
from paper.reports.render import write
from paper.reports.run import find

FEWER = {  # values that table 9 varies, with the base of both recipes and what its claims are about
    "num_groups": (4, 8),
    "window": (0.5, 1.0),
    "temperature": (0.1, 0.5),
    "sinkhorn_iterations": (3, 10, 20),
    "num_sinks": (0, 4),
}
NEED_HARNESS = {"table1", "table3", "table4", "table10", "figure1", "figure2", "gsm8k"}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(REPORTS))
def test_every_report_is_measured_and_written(name, lab, tmp_path, monkeypatch):
    if name in NEED_HARNESS:
        pytest.importorskip("lm_eval")
        pytest.importorskip("peft")
    monkeypatch.setattr("paper.reports.figure.draw", lambda report: b"<svg/>")
    monkeypatch.setattr(ablation, "VARIED", FEWER)
    report = merged({recipe: _planned(name, lab.under(recipe)) for recipe in recipes_of(name)})
    assert report.name == name
    assert report.rows
    keys = {column.key for column in report.columns}
    empty = {key for key in keys if all(row.get(key) is None for row in report.rows)}
    allowed = {"short", "long", "lost"} if name != "pairs" else keys  # too little text for these
    assert not {key for key in empty if not key.startswith("paper")} - allowed
    for row in report.rows:
        if "ppl" in row and row.get("dominance") is not None:
            assert row["retained"] is not None, "a perplexity is given with dominance and pairs kept"
    assert {claim.recipe for claim in report.claims} <= set(recipes_of(name))
    assert {"gate", "lambda", "sinks", "assignment", "N"} <= set(report.setting)
    assert all(claim.evidence and ("nan" not in claim.evidence or claim.held is None) for claim in report.claims)
    paths = write(report, tmp_path, log="a line\n")
    assert {path.suffix for path in paths} >= {".md", ".csv", ".tex", ".json", ".log"}
    stored = json.loads((tmp_path / f"{name}.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} in JSON"))
    assert len(stored["rows"]) == len(report.rows)
    with (tmp_path / f"{name}.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == len(report.rows)
    if report.figure is not None:
        assert len(report_figure(report).data) == len(report.figure.series)


def _planned(name, lab):
    """The report, after which the centroids that were to be trained are on disk, and no others are new."""
    planned = {lab.training(one.seed, one.plan, **one.config)[2].name for one in centroid_trainings(name, lab)}
    folder = lab.folder / "centroids"
    before = {file.name for file in folder.glob("*.safetensors")}
    report = find(name)(lab)
    after = {file.name for file in folder.glob("*.safetensors")}
    assert planned <= after
    assert after - before <= planned
    return report


def test_every_report_has_a_function():
    assert all(callable(find(name)) for name in REPORTS)
