"""Every report on a tiny model, its forms on disk, and what a user can get wrong."""

from __future__ import annotations

import csv
import json

import pytest

from focus_explorer.cli.main import main
from focus_explorer.errors import TrainingStopped
from focus_explorer.reproduce.figure import report_figure
from focus_explorer.reproduce.names import REPORTS
from focus_explorer.reproduce.render import write
from focus_explorer.reproduce.run import find
from tests.explorer.reproduce.conftest import TEXT

NEED_HARNESS = {"table1", "table2", "table4"}


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
            assert row["retained"] is not None, "a perplexity stands beside dominance and pairs kept"
    assert all(claim.evidence and ("nan" not in claim.evidence or claim.held is None) for claim in report.claims)
    paths = write(report, tmp_path, log="a line\n")
    assert {path.suffix for path in paths} >= {".md", ".csv", ".tex", ".json", ".log"}
    stored = json.loads((tmp_path / f"{name}.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} in JSON"))
    assert len(stored["rows"]) == len(report.rows)
    with (tmp_path / f"{name}.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == len(report.rows)
    if report.figure is not None:
        assert len(report_figure(report).data) == len(report.figure.series)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table99"], "invalid choice: 'table99'"),
        (["table7", "--scale", "huge"], "there is no scale 'huge'; expected tiny or small or paper"),
        (["table7", "--scale", "small"], "needs text of your own; expected --text FOLDER --val FILE"),
        (["table7", "--text", "{file}"], "no held-out text was given"),
        (["table7", "--steps", "0"], "--steps is 0; expected at least 1"),
        (["table7", "--out", "{file}/under"], "cannot write to"),
        (["table7", "--text", "{empty}", "--val", "{file}"], "has no .txt files; expected text files"),
    ],
)
def test_bad_input_is_one_clear_line(words, message, tmp_path, capsys):
    file, empty = tmp_path / "a.txt", tmp_path / "empty"
    file.write_text("text")
    empty.mkdir()
    given = [word.format(file=file, empty=empty) for word in words]
    out = [] if "--out" in words else ["--out", str(tmp_path / "out")]
    assert main(["reproduce", *given, *out]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert message in errors[-1]
    assert errors[-1].startswith("error: ")


def test_the_scale_of_the_paper_says_what_it_needs(folder, tmp_path, capsys):
    """Offline, what only the hub has is named, and nothing half-made is left."""
    text = tmp_path / "a.txt"
    text.write_text(TEXT * 30)
    words = ["reproduce", "table3", "--scale", "paper", "--text", str(text), "--val", str(text), "--model", str(folder)]
    assert main([*words, "--out", str(tmp_path / "out"), "--steps", "1"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), TrainingStopped(3, None)])
def test_stopping_says_what_is_kept(stop, tmp_path, monkeypatch, capsys):
    def interrupted(*arguments, **settings):
        raise stop

    monkeypatch.setattr("focus_explorer.reproduce.run.reproduce", interrupted)
    assert main(["reproduce", "table7", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("stopped; reports written so far")


def test_every_report_has_a_function():
    assert all(callable(find(name)) for name in REPORTS)
