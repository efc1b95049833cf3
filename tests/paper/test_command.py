"""`python -m paper`: its options, one line for bad input, what is kept, and the old command."""

from __future__ import annotations

import dataclasses

import pytest

from focus_explorer.cli.main import main as explorer
from focus_explorer.errors import InputError, TrainingStopped
from paper import __main__ as command
from paper.__main__ import main
from paper.lab.scale import SCALES
from paper.output import files
from tests.paper.conftest import TEXT, UNIT


def last_error(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("words", [["table7"], ["--scale", "tiny", "table7"], []])
def test_the_old_command_names_the_new_one(words, capsys):
    assert explorer(["reproduce", *words]) == 2
    error = last_error(capsys)
    assert error.startswith("error: ")
    assert "python -m paper" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no table or figure was named; see `python -m paper --list`"),
        (["table99"], "there is no table or figure 'table99'; see `python -m paper --list`"),
        (["table6", "--scale", "huge"], "there is no scale 'huge'; expected tiny or small or paper"),
        (["table6", "--scale", "small"], "needs text of your own: --text FOLDER --val FILE"),
        (["table6", "--scale", "paper"], "needs PG-19 as --text FOLDER --val FILE, a GPU of 80 GB for days"),
        (["table6", "--text", "{file}"], "no held-out text was given"),
        (["table6", "--steps", "0"], "--steps is 0; expected at least 1"),
        (["table6", "--seeds", "0"], "--seeds is 0; expected at least 1"),
        (["table6", "--recipe", "ours"], "table6 cannot be measured under the recipe ours; expected --recipe paper"),
        (["table6", "--recipe", "theirs"], "invalid choice: 'theirs'"),
        (["domains", "--domain", "{empty}"], "expected NAME=FOLDER or NAME=FILE"),
        (["table6", "--out", "{file}/under"], "cannot write to"),
        (["table6", "--text", "{empty}", "--val", "{file}"], "has no .txt files; expected text files"),
    ],
)
def test_bad_input_is_one_clear_line(words, message, tmp_path, capsys):
    file, empty = tmp_path / "a.txt", tmp_path / "empty"
    file.write_text("text")
    empty.mkdir()
    given = [word.format(file=file, empty=empty) for word in words]
    assert main([*given, *([] if "--out" in words else ["--out", str(tmp_path / "out")])]) == 2
    error = last_error(capsys)
    assert message in error
    assert error.startswith("error: ")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), TrainingStopped(3, None)])
def test_stopping_says_what_is_kept(stop, monkeypatch, capsys):
    def interrupted(arguments):
        raise stop

    monkeypatch.setattr(command, "reproduce", interrupted)
    assert main(["table6"]) == 130
    assert last_error(capsys).startswith("stopped; reports written so far and trained centroids are kept")


@pytest.fixture
def small_command(folder, tmp_path, monkeypatch):
    """The words of a command on a tiny model and a text just long enough."""
    monkeypatch.setattr(files, "draw", lambda figure, title: b"<svg/>")
    monkeypatch.setitem(SCALES, "tiny", UNIT)
    text, val = tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_text(TEXT * 3)
    val.write_text(TEXT[::-1] + TEXT)
    out = tmp_path / "out"
    return ["--model", str(folder), "--text", str(text), "--val", str(val), "--out", str(out)], out


@pytest.mark.long
def test_what_is_written_is_not_measured_again(small_command, capsys, monkeypatch):
    words, out = small_command
    assert main([*words, "leak"]) == 0
    assert "the paper's recipe" in (out / "leak.md").read_text()
    assert "the paper&#39;s recipe" in (out / "index.html").read_text()
    assert "python -m paper leak --scale tiny --text FOLDER --val b.txt" in (out / "leak.json").read_text()
    before = (out / "leak.json").stat().st_mtime_ns
    monkeypatch.setattr("paper.lab.lab.train_centroids", lambda *a, **k: pytest.fail("trained again"))
    assert main([*words, "leak"]) == 0
    assert "leak: kept from before" in capsys.readouterr().out
    assert (out / "leak.json").stat().st_mtime_ns == before
    assert main([*words, "leak", "--again", "--recipe", "ours"]) == 0  # with the centroids of before
    assert "our recipe" in (out / "leak.md").read_text()
    assert "the paper's recipe" not in (out / "leak.md").read_text()


@pytest.mark.slow
def test_a_report_that_cannot_be_measured_does_not_keep_the_others(small_command, capsys, monkeypatch):
    words, out = small_command

    def refused(lab):
        raise InputError("the hub cannot be reached", fix="connect to it")

    monkeypatch.setattr("paper.reports.leak.leak", refused)
    assert main([*words, "leak", "balance"]) == 2
    errors = capsys.readouterr().err
    assert "1 of 2 reports could not be measured" in errors
    assert "leak: the hub cannot be reached; connect to it" in errors
    assert (out / "balance.md").exists()
    assert not (out / "leak.md").exists()
    assert "leak" in (out / "index.html").read_text()  # among those that are not measured


def test_a_text_too_short_for_the_sequences_is_refused_before_training(small_command, capsys, monkeypatch):
    words, out = small_command
    monkeypatch.setitem(SCALES, "tiny", dataclasses.replace(UNIT, val_sequences=1000))
    monkeypatch.setattr("paper.lab.lab.train_centroids", lambda *a, **k: pytest.fail("trained"))
    assert main([*words, "leak"]) == 2
    message = last_error(capsys)
    assert "the held-out text has" in message
    assert "at least 96,000: 1000 sequences of 96" in message
    assert not list(out.glob("leak.*"))
