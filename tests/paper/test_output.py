"""Reports as Markdown, CSV, LaTeX, figures and files, under two recipes, and the page of all."""

from __future__ import annotations

import csv
import dataclasses
import math

from focus_explorer.errors import InputError
from focus_runtime.measure.intervals import Interval
from paper.output import files
from paper.output.files import comma_separated, latex, markdown, write
from paper.output.page import claims_table, read_report, write_page, written_reports
from paper.output.report import Claim, Column, Figure, Report, Series, merged


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


def test_without_a_browser_the_numbers_are_written_and_it_is_said(tmp_path, monkeypatch):
    def refused(figure, title):
        raise InputError("no browser")

    monkeypatch.setattr(files, "draw", refused)
    figure = Figure("bar", "x", "y", [Series("a", ["p"], [3.0])])
    paths = write(report(figure=figure), tmp_path / "new")
    assert {path.suffix for path in paths} == {".md", ".csv", ".tex", ".json"}
    assert "needs Chrome or Chromium" in (tmp_path / "new" / "table1.md").read_text()
    assert not [path for path in (tmp_path / "new").iterdir() if path.name.startswith(".")]


def pair():
    full = {"name": "full attention", "ppl": 2.0}
    figures = [
        Figure("line", "x", "y", [Series("Focus", [1, 2], y)], marks={"full": 2.0, "window": y[0]})
        for y in ([3.0, 4.0], [2.5, 3.0])
    ]
    return {
        recipe: report(
            rows=[full, {"name": "Focus", "ppl": Interval(value, value - 1, value + 1, 9)}],
            setting={"K": 4, "sinks": sinks},
            claims=[Claim("it works", held, f"{value}", "margin: 5")],
            figure=figure,
            notes=["the same", recipe],
        )
        for (recipe, value, sinks, held), figure in zip(
            [("paper", 9.0, 0, False), ("ours", 3.0, 4, True)], figures, strict=True
        )
    }


def test_rows_settings_claims_and_curves_of_both():
    made = merged(pair())
    assert [(row["name"], row["recipe"]) for row in made.rows] == [
        ("full attention", "does not matter"),
        ("Focus", "paper's"),
        ("Focus", "ours"),
    ]
    assert made.setting == {"K": 4, "sinks": {"paper": 0, "ours": 4}}
    assert made.notes == ["the same", "paper", "ours"]
    assert [(claim.recipe, claim.held) for claim in made.claims] == [("paper", False), ("ours", True)]
    assert [series.name for series in made.figure.series] == ["Focus, paper's", "Focus, ours"]
    assert made.figure.marks == {"full": 2.0, "window": 3.0, "window, ours": 2.5}
    text = markdown(made)
    assert (
        "- it works\n  - the paper's recipe: **did not hold** (9.0; margin: 5)\n  - our recipe: **held** (3.0" in text
    )
    alone = merged({"ours": pair()["ours"]})
    assert "recipe" not in {column.key for column in alone.columns}
    assert alone.claims[0].recipe == "ours"


def test_the_page_shows_every_written_report_with_its_verdicts(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "draw", lambda figure, title: b'<?xml version="1.0"?><svg id="drawn"/>')
    made = dataclasses.replace(merged(pair()), title="A <title>", key="k", seconds=1.5)
    write(made, tmp_path)
    (tmp_path / "table7.json").write_text("{}")  # no report
    assert [one.name for one in written_reports(tmp_path)] == ["table1"]
    again = read_report(tmp_path / "table1.json")
    assert (again.rows, again.claims, again.key) == (made.rows, made.claims, "k")
    page = write_page(tmp_path).read_text()
    assert "A &lt;title&gt;" in page
    assert '<svg id="drawn"/>' in page
    assert "<?xml" not in page
    assert page.index("the paper&#39;s recipe") < page.index("our recipe")
    assert all(words in page for words in ("1 held", "1 did not hold", "0 not decided here"))
    assert '<td class="paper">42.8</td>' not in page  # these rows have no number of the paper
    assert "http" not in page.replace("https", "http").split("</style>")[1].replace("http://www.w3.org", "")
    table = claims_table(tmp_path)
    assert "| table1 | it works | paper | did not hold | 9.0 | margin: 5 |" in table
