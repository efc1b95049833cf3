"""A report under two recipes: what is the same once, what differs side by side."""

from __future__ import annotations

import dataclasses
import json

from benchmarks.claims import END, START, with_claims
from focus_runtime.measure.intervals import Interval
from paper.reports.kept import read_kept, write_kept
from paper.reports.merging import merged
from paper.reports.page import claims_table, read_report, write_page, written_reports
from paper.reports.render import markdown, write
from paper.reports.report import Claim, Figure, Series
from tests.paper.reports.test_render import report


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
    monkeypatch.setattr("paper.reports.figure.draw", lambda report: b'<?xml version="1.0"?><svg id="drawn"/>')
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


def test_reports_from_before_the_recipes_say_so_and_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr("paper.reports.figure.draw", lambda report: b"<svg/>")
    write(report(claims=[Claim("it works", True, "9.0", "")]), tmp_path)
    write(dataclasses.replace(merged(pair()), name="table2", key="k"), tmp_path)
    page = write_page(tmp_path).read_text()
    assert all(words in page for words in ("1 held", "1 did not hold", "1 more verdicts are older"))
    older, newer = page.split('<section id="table2">')
    assert "Measured before there were two recipes" in older
    assert '<span class="chip open">then: held</span>' in older
    assert "before there were two recipes" not in newer
    assert '<span class="chip held">held</span>' in newer
    table = claims_table(tmp_path)
    assert "| table1 | it works | before the recipes | held | 9.0 | none written |" in table
    write(report(name="pairs-kept", claims=[Claim("it works", True, "9.0", "")]), tmp_path)
    assert claims_table(tmp_path) == table  # the same claim from the same rows


def test_a_logs_table_of_claims_is_made_again_in_its_place():
    log = with_claims("# Log\n\nbefore\n", "| old |\n")
    assert log.endswith(f"before\n\n{START}\n| old |\n{END}\n")
    again = with_claims(log + "after\n", "| new |\n")
    assert "old" not in again
    assert again.endswith(f"{START}\n| new |\n{END}\nafter\n")


def test_rows_survive_the_disk(tmp_path):
    cells = {"a": Interval(1.0, None, None, 1), "b": [1, Interval(2.0, 1.0, 3.0, 4, 2)], "c": {"d": None, "e": "x"}}
    write_kept(tmp_path / "new" / "row.json", cells)
    assert read_kept(tmp_path / "new" / "row.json") == cells
    assert read_kept(tmp_path / "none.json") is None
    (tmp_path / "half.json").write_text(json.dumps([1])[:-1])
    assert read_kept(tmp_path / "half.json") is None
