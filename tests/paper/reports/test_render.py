"""Reports as Markdown, CSV, LaTeX and files."""

from __future__ import annotations

import csv
import math

from focus_runtime.measure.intervals import Interval
from paper.reports.render import cell, comma_separated, latex, markdown, write
from paper.reports.report import Claim, Column, Figure, Report, Series


def report(**changes):
    columns = [
        Column("name", "method"),
        Column("ppl", "perplexity"),
        Column("kept", "pairs kept", 1, percent=True),
        Column("paper_ppl", "perplexity", 1, paper=True),
    ]
    rows = [
        {"name": "a | b & 5 %", "ppl": Interval(2.0, 1.5, 2.5, 3), "kept": 0.5, "paper_ppl": 42.8},
        {"name": "full", "ppl": math.nan, "kept": None},
    ]
    claims = [Claim("it works", True, "2 of 2"), Claim("it flies", None, "not tried")]
    values = {
        "name": "table1",
        "title": "A title",
        "columns": columns,
        "rows": rows,
        "setting": {"K": 4},
        "claims": claims,
    }
    return Report(**{**values, **changes})


def test_markdown_shows_intervals_claims_and_the_papers_numbers_apart():
    text = markdown(report())
    assert "| method | perplexity | pairs kept | paper: perplexity |" in text
    assert "| a \\| b & 5 % | 2.00 (1.50 to 2.50) | 50.0 % | 42.8 |" in text
    assert "| full | – | – | – |" in text
    assert "- it works\n  - **held** (2 of 2)\n" in text
    assert "- it flies\n  - **not decided here** (not tried)\n" in text
    assert "- K: 4" in text


def test_csv_gives_full_precision_and_the_ends_of_intervals():
    rows = list(csv.reader(comma_separated(report()).splitlines()))
    assert rows[0] == ["name", "ppl", "ppl_low", "ppl_high", "kept", "paper_ppl"]
    assert rows[1] == ["a | b & 5 %", "2.0", "1.5", "2.5", "0.5", "42.8"]


def test_latex_escapes_and_states_the_setting():
    text = latex(report())
    assert r"a \textbar{} b \& 5\,\% & 2.00 (1.50 to 2.50) & 50.0\,\% & 42.8 \\" in text
    assert r"\caption{A title. K: 4.}" in text
    assert r"\begin{tabular}{lrrr}" in text
    symbols = latex(report(title="τ ≤ 0.2, K ≥ 4, −1 ^ ~ \\"))
    assert r"$\tau$ $\leq$ 0.2, K $\geq$ 4, $-$1 \textasciicircum{} \textasciitilde{} \textbackslash{}." in symbols


def test_cells():
    assert cell(None, Column("a", "a")) == "–"
    assert cell(1234567, Column("a", "a", 0)) == "1,234,567"
    assert cell(0.123, Column("a", "a", 1, percent=True)) == "12.3 %"
    assert cell(Interval(1.0, None, None, 1), Column("a", "a")) == "1.00"
    assert cell(0.0123, Column("a", "a", percent=True, signed=True)) == "+1.23 %"


def test_without_a_browser_the_numbers_are_written_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("paper.reports.figure.draw", lambda report: None)
    figure = Figure("bar", "x", "y", [Series("a", ["p"], [3.0])])
    paths = write(report(figure=figure), tmp_path / "new")
    assert {path.suffix for path in paths} == {".md", ".csv", ".tex", ".json"}
    assert "needs Chrome or Chromium" in (tmp_path / "new" / "table1.md").read_text()
    assert not [path for path in (tmp_path / "new").iterdir() if path.name.startswith(".")]
