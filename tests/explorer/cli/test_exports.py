"""Files of runs by `focus-explorer export`, `figure`, `bundle`, `rebuild` and `report`; what cannot be written."""

from __future__ import annotations

import json
import zipfile

import pytest

from focus_explorer.cli.main import main
from focus_explorer.exports.bundle import write as bundle_tables
from focus_explorer.exports.bundle.write import write_bundle
from focus_explorer.exports.figures import render as report_print
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import FORMATS
from focus_explorer.usecases.labels import delete_run, undelete_run
from tests.explorer.cli.conftest import one_error
from tests.test_imports import HEAVY, MAIN, imported


@pytest.mark.slow
@pytest.mark.parametrize("text", [True, False])
def test_the_text_is_included_on_request_and_the_path_is_printed(text, tmp_path, monkeypatch, capsys, service, run_id):
    monkeypatch.setattr(bundle_tables, "TABLES", ("groups",))
    out = tmp_path / "b.zip"
    options = ["--text"] * text + ["--no-figures", "--out", str(out), "--db", str(service.database.path)]
    assert main(["bundle", run_id, *options]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    with zipfile.ZipFile(out) as archive:
        assert (f"text/{run_id}.txt" in archive.namelist()) == text
        manifest = json.loads(archive.read("manifest.json"))
    assert (manifest["includes_text"], manifest["figures"]["made"]) == (text, [])


@pytest.mark.slow
def test_tables_of_a_bundle_from_the_database_are_the_same(tmp_path, monkeypatch, capsys, service, run_id):
    monkeypatch.setattr(bundle_tables, "TABLES", ("groups",))
    bundle = write_bundle(service, [run_id], tmp_path / "b.zip", figures=False)
    words, database = ["rebuild", str(bundle), "--out"], ["--db", str(service.database.path)]
    assert main([*words, str(tmp_path / "tables"), *database]) == 0
    first, last = capsys.readouterr().out.splitlines()
    written = [path for path in (tmp_path / "tables").rglob("*") if path.is_file()]
    assert first == f"{len(written)} files of tables in {tmp_path / 'tables'} (from the database)"
    assert last == "every table has the bytes it had in the bundle"
    one_error(capsys, main([*words, str(tmp_path), *database]), "is there already")


@pytest.mark.parametrize(
    ("words", "parts"),
    [(["bundle"], ["RUN, --out"]), (["bundle", "a-run"], ["--out"]), (["rebuild"], ["bundle"]), (["report"], ["RUN"])],
)
def test_what_is_required_is_named(words, parts, capsys):
    one_error(capsys, main(words), *parts)


def test_what_cannot_be_bundled_is_said(tmp_path, capsys, service, run_id):
    database = str(service.database.path)
    assert main(["bundle", "nope", "--out", str(tmp_path / "b.zip"), "--db", database]) == 2
    assert "there is no run 'nope'" in capsys.readouterr().err
    assert main(["bundle", run_id, "--out", str(tmp_path / "b.tar"), "--db", database]) == 2
    assert "ends in .zip" in capsys.readouterr().err
    delete_run(service, run_id)
    try:
        assert main(["bundle", run_id, "--out", str(tmp_path / "b.zip"), "--db", database]) == 2
        assert "was deleted" in capsys.readouterr().err
    finally:
        undelete_run(service, run_id)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_export_imports_nothing_heavy(service, run_id, tmp_path):
    out = tmp_path / "groups.csv"
    words = ["export", run_id, "--what", "groups", "--out", str(out), "--db", str(service.database.path)]
    modules, _ = imported(MAIN, *words)
    assert not modules & HEAVY
    assert len(out.read_text().splitlines()) > 2


@pytest.mark.parametrize(
    ("command", "names"), [("export", [*TABLES, *FORMATS]), ("figure", ["group_sizes", "neurips", "svg"])]
)
def test_the_list_names_what_there_is(command, names, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--list"])
    assert not end.value.code
    listed = capsys.readouterr().out
    assert all(name in listed for name in names)


def test_the_ending_chooses_the_format(tmp_path, capsys, service, run_id):
    out = tmp_path / "sizes.HTML"
    command = ["figure", run_id, "--what", "group_sizes", "--db", str(service.database.path), "--out"]
    assert main([*command, str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert "plotly" in out.read_text(encoding="utf-8").lower()
    one_error(capsys, main([*command, str(tmp_path / "sizes.gif")]), "does not say which format", ".pdf, .svg")
    one_error(capsys, main([*command, str(tmp_path / "s"), "--format", "gif"]), "no figure format 'gif'")
    one_error(capsys, main([*command, str(tmp_path / "s.svg"), "--preset", "a0"]), "no preset 'a0'")
    one_error(capsys, main([*command, str(tmp_path / "s.html"), "--layer", "one"]), "invalid int value")
    assert [path.name for path in tmp_path.iterdir()] == ["sizes.HTML"]


@pytest.mark.slow
def test_only_the_page_on_request(monkeypatch, tmp_path, capsys, service, run_id):
    monkeypatch.setattr(report_print, "browser", lambda: pytest.fail("no browser is needed for the page"))
    words = ["report", run_id, "--no-pdf", "--out", str(tmp_path), "--db", str(service.database.path)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'report.html'}\n"
    assert "note:" not in captured.err


@pytest.mark.slow
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
