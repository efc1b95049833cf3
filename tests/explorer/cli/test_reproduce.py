"""`focus-explorer reproduce`: its options, one line for bad input, and what it says when it is stopped."""

from __future__ import annotations

import pytest

from focus_explorer.cli.main import main, parser
from focus_explorer.errors import TrainingStopped
from focus_explorer.reproduce.names import REPORTS
from tests.explorer.cli.conftest import options_in_help
from tests.explorer.reproduce.conftest import TEXT


def test_help_names_the_options_and_every_report(capsys):
    named = {"--scale", "--text", "--val", "--model", "--steps", "--out", "--work", "--device", "--json"}
    assert options_in_help(capsys, "reproduce") >= named
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in REPORTS)


def test_defaults_are_those_of_the_smallest_scale():
    arguments = parser(["reproduce"]).parse_args(["reproduce", "table6", "dominance"])
    assert (arguments.names, arguments.scale, arguments.text, arguments.out) == (
        ["table6", "dominance"],
        "tiny",
        [],
        None,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table99"], "invalid choice: 'table99'"),
        (["table6", "--scale", "huge"], "there is no scale 'huge'; expected tiny or small or paper"),
        (["table6", "--scale", "small"], "needs text of your own; expected --text FOLDER --val FILE"),
        (["table6", "--text", "{file}"], "no held-out text was given"),
        (["table6", "--steps", "0"], "--steps is 0; expected at least 1"),
        (["table6", "--out", "{file}/under"], "cannot write to"),
        (["table6", "--text", "{empty}", "--val", "{file}"], "has no .txt files; expected text files"),
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


def test_the_scale_of_the_paper_says_what_it_needs(model_folder, tmp_path, capsys):
    """Offline, what only the hub has is named, and nothing half-made is left."""
    text = tmp_path / "a.txt"
    text.write_text(TEXT * 30)
    words = [
        "reproduce",
        "table2",
        "--scale",
        "paper",
        "--text",
        str(text),
        "--val",
        str(text),
        "--model",
        model_folder,
    ]
    assert main([*words, "--out", str(tmp_path / "out"), "--steps", "1"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), TrainingStopped(3, None)])
def test_stopping_says_what_is_kept(stop, tmp_path, monkeypatch, capsys):
    def interrupted(*arguments, **settings):
        raise stop

    monkeypatch.setattr("focus_explorer.reproduce.run.reproduce", interrupted)
    assert main(["reproduce", "table6", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("stopped; reports written so far")
