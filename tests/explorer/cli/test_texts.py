"""`focus-explorer texts`: the table of domains, and mistakes in one line."""

from __future__ import annotations

import os

import pytest

from focus_explorer.cli.main import main
from focus_explorer.usecases.mixture import build
from focus_explorer.usecases.mixture.build import Package
from focus_explorer.usecases.mixture.sources import SOURCES
from tests.explorer.cli.conftest import one_error, options_in_help


@pytest.fixture
def novels(tmp_path):
    folder = tmp_path / "novels"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(f"Novel {name}.")
    return str(folder)


def test_the_domains_and_what_is_left_out_are_printed(tmp_path, novels, monkeypatch, capsys):
    def download(requested, folder, progress):
        progress("Downloading packages", 0.5)
        (folder / "dkms").write_text("#!/bin/sh\n")
        found = {name: "not there" for names in requested.values() for name in names}
        (folder / "p" / "usr" / "sbin").mkdir(parents=True)
        (folder / "p" / "usr" / "sbin" / "dkms").write_text("#!/bin/sh\n")
        return found | {"dkms": Package("dkms", "3", folder / "p")}

    monkeypatch.setitem(build.build_mixture.__kwdefaults__, "download", download)
    out = str(tmp_path / "out")
    assert main(["texts", out, "--novels", novels, "--held-out", "a.txt"]) == 0
    printed = capsys.readouterr()
    assert "unseen      shell          1 files    0.00 MB" in printed.out
    assert "sources.json names every source with its licence" in printed.out
    left_out = [line for line in printed.err.splitlines() if "is left out" in line]
    assert len(left_out) == len(SOURCES) - 1
    assert all(line.startswith("note: ") for line in left_out)


def test_mistakes_are_one_line(tmp_path, novels, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    out = str(tmp_path / "out")
    one_error(capsys, main(["texts", out]), "--novels")
    one_error(capsys, main(["texts", out, "--novels", str(tmp_path)]), "at least two novels")
    one_error(capsys, main(["texts", novels, "--novels", novels]), "exists and is not empty")
    one_error(capsys, main(["texts", out, "--novels", novels]), "this machine has no apt-cache", "Debian machine")
    assert not os.path.exists(out)


def test_help_names_the_options(capsys):
    assert options_in_help(capsys, "texts") == {"--novels", "--held-out"}
