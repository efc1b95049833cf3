"""`focus-explorer rebuild`: what it prints of tables made again, and one line for what is no bundle."""

from __future__ import annotations

import json
import zipfile

import pytest

from focus_explorer.cli.main import main
from focus_explorer.exports.bundle import write as bundle_tables
from focus_explorer.exports.bundle.write import write_bundle
from tests.explorer.cli.conftest import one_error

pytestmark = pytest.mark.slow


@pytest.fixture
def bundle(tmp_path, monkeypatch, service, run_id):
    """A bundle of one table."""
    monkeypatch.setattr(bundle_tables, "TABLES", ("groups",))
    return write_bundle(service, [run_id], tmp_path / "b.zip", figures=False)


def test_tables_from_the_database_are_the_same(bundle, tmp_path, capsys, service):
    out = tmp_path / "tables"
    assert main(["rebuild", str(bundle), "--out", str(out), "--db", str(service.database.path)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    written = [path for path in out.rglob("*") if path.is_file()]
    assert first == f"{len(written)} files of tables in {out} (from the database)"
    assert last == "every table has the bytes it had in the bundle"


def test_another_version_is_named_without_changing_the_status(bundle, tmp_path, capsys, service):
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["versions"]["pyarrow"] = "1.0"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    words = ["rebuild", str(folder), "--out", str(tmp_path / "out"), "--db", str(service.database.path)]
    assert main(words) == 0
    assert "here differs: version of pyarrow: 1.0 in the bundle" in capsys.readouterr().out


def test_what_is_no_bundle_is_one_line(bundle, tmp_path, capsys, service):
    database, out = ["--db", str(service.database.path)], ["--out", str(tmp_path / "out")]
    one_error(capsys, main(["rebuild", str(tmp_path / "absent.zip"), *out, *database]), "absent.zip")
    (tmp_path / "text.zip").write_text("no zip")
    one_error(capsys, main(["rebuild", str(tmp_path / "text.zip"), *out, *database]), "text.zip")
    one_error(capsys, main(["rebuild", str(bundle), "--out", str(tmp_path), *database]), "is there already")
    one_error(capsys, main(["rebuild"]), "bundle")
    assert not (tmp_path / "out").exists()
