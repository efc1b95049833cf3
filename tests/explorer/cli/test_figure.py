"""`focus-explorer figure`: lists, the format by the ending of the file, and one line for what cannot be drawn."""

from __future__ import annotations

import pytest

from focus_explorer.cli.main import main
from tests.explorer.cli.conftest import one_error, options_in_help


def test_help_names_the_options(capsys):
    named = {"--what", "--format", "--out", "--list", "--db", "--preset", "--layer", "--head"}
    assert options_in_help(capsys, "figure") == named


def test_the_list_names_figures_formats_and_presets(capsys):
    with pytest.raises(SystemExit) as end:
        main(["figure", "--list"])
    assert not end.value.code
    listed = capsys.readouterr().out
    assert all(name in listed for name in ["group_sizes", "neurips", "svg"])


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


def test_what_was_not_measured_is_one_line(tmp_path, capsys, service, run_id):
    command = ["figure", run_id, "--what", "attention", "--db", str(service.database.path)]
    assert main([*command, "--out", str(tmp_path / "x.pdf")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
