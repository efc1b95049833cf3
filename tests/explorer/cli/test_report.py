"""`focus-explorer report`: the files it writes and prints, and one line for runs it cannot take."""

from __future__ import annotations

import pytest

from focus_explorer.cli.main import main
from focus_explorer.exports.figures import render as report_print
from tests.explorer.cli.conftest import one_error, options_in_help


def test_help_names_the_options(capsys):
    assert options_in_help(capsys, "report") == {"--out", "--no-pdf", "--db"}


@pytest.mark.slow
def test_only_the_page_on_request(monkeypatch, tmp_path, capsys, service, run_id):
    monkeypatch.setattr(report_print, "browser", lambda: pytest.fail("no browser is needed for the page"))
    words = ["report", run_id, "--no-pdf", "--out", str(tmp_path), "--db", str(service.database.path)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'report.html'}\n"
    assert "note:" not in captured.err


def test_a_report_needs_a_run(capsys):
    one_error(capsys, main(["report"]), "RUN")


def test_without_a_browser_there_is_the_page(monkeypatch, tmp_path, capsys, service, run_id):
    monkeypatch.setattr(report_print, "browser", lambda: None)
    database = ["--db", str(service.database.path)]
    assert main(["report", run_id, "--out", str(tmp_path), *database]) == 0
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "no PDF: a PDF needs Chrome or Chromium" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert main(["report", "nope", "--out", str(tmp_path / "x"), *database]) == 2
    assert main(["report", *(f"{n}" for n in range(5)), "--out", str(tmp_path / "x"), *database]) == 2
    assert "expected 1 to 4 runs" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
