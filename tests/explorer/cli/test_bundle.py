"""`focus-explorer bundle`: its options reach the writer, and what cannot be bundled is one line."""

from __future__ import annotations

import json
import zipfile

import pytest

from focus_explorer.cli.main import main
from focus_explorer.exports.bundle import write as bundle_tables
from focus_explorer.usecases.labels import delete_run, undelete_run
from tests.explorer.cli.conftest import one_error, options_in_help


def test_help_names_the_options(capsys):
    assert options_in_help(capsys, "bundle") == {"--out", "--text", "--no-figures", "--db"}


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


def test_a_bundle_needs_a_run_and_a_file(capsys):
    one_error(capsys, main(["bundle"]), "RUN, --out")
    one_error(capsys, main(["bundle", "a-run"]), "--out")


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
