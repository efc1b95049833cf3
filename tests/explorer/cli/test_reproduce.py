"""`focus-explorer reproduce`: its options, one line for bad input, and what it says when it is stopped."""

from __future__ import annotations

import dataclasses
import re

import pytest

from focus_explorer.cli.main import main, parser
from focus_explorer.errors import InputError, TrainingStopped
from paper.reports.names import REPORTS
from paper.reports.scale import SCALES
from tests.explorer.cli.conftest import options_in_help
from tests.paper.reports.conftest import TEXT, UNIT


def test_help_names_the_options_and_every_report(capsys):
    named = {
        "--recipe",
        "--plan",
        "--again",
        "--seeds",
        "--domain",
        "--scale",
        "--text",
        "--val",
        "--model",
        "--steps",
        "--out",
        "--work",
        "--device",
        "--json",
    }
    assert options_in_help(capsys, "reproduce") >= named
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    text = "".join(capsys.readouterr().out.split())  # lines end within names
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
        (["table6", "--seeds", "0"], "--seeds is 0; expected at least 1"),
        (
            ["table6", "--recipe", "ours"],
            "table6 cannot be measured under the recipe ours; expected --recipe paper",
        ),
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

    monkeypatch.setattr("paper.reports.run.reproduce", interrupted)
    assert main(["reproduce", "table6", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("stopped; reports written so far")


@pytest.fixture
def small_command(model_folder, tmp_path, monkeypatch):
    """The words of a command on a tiny model and a text just long enough."""
    monkeypatch.setattr("paper.reports.figure.draw", lambda report: b"<svg/>")
    monkeypatch.setitem(SCALES, "tiny", UNIT)
    text, val = tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_text(TEXT * 3)
    val.write_text(TEXT[::-1] + TEXT)
    out = tmp_path / "out"
    return ["reproduce", "--model", model_folder, "--text", str(text), "--val", str(val), "--out", str(out)], out


@pytest.mark.slow
def test_what_is_written_is_not_measured_again_and_a_plan_says_so(small_command, capsys, monkeypatch):
    words, out = small_command
    assert main([*words, "leak", "--plan"]) == 0
    plan = capsys.readouterr().out
    assert re.search(r"^leak +under paper and ours +4 trained centroids, 0 kept or shared; 8 steps", plan, re.MULTILINE)
    assert "a step of 96 tokens takes" in plan
    assert not out.exists() or not list(out.glob("*.json"))
    assert main([*words, "leak"]) == 0
    assert "the paper's recipe" in (out / "leak.md").read_text()
    assert "the paper&#39;s recipe" in (out / "index.html").read_text()
    before = (out / "leak.json").stat().st_mtime_ns
    assert main([*words, "leak", "--plan"]) == 0
    assert re.search(r"^leak +written$", capsys.readouterr().out, re.MULTILINE)
    monkeypatch.setattr("paper.reports.lab.train_centroids", lambda *a, **k: pytest.fail("trained again"))
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

    monkeypatch.setattr("paper.reports.supplementary.leak", refused)
    assert main([*words, "leak", "balance"]) == 2
    errors = capsys.readouterr().err
    assert "1 of 2 reports could not be measured" in errors
    assert "leak: the hub cannot be reached; connect to it" in errors
    assert "Traceback" not in errors
    assert (out / "balance.md").exists()
    assert not (out / "leak.md").exists()
    assert "leak" in (out / "index.html").read_text()  # among those that are not measured


def test_a_text_too_short_for_the_sequences_is_refused_before_training(small_command, capsys, monkeypatch):
    words, out = small_command
    monkeypatch.setitem(SCALES, "tiny", dataclasses.replace(UNIT, val_sequences=1000))
    monkeypatch.setattr("paper.reports.lab.train_centroids", lambda *a, **k: pytest.fail("trained"))
    assert main([*words, "leak"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "the held-out text has" in message
    assert "at least 96,000: 1000 sequences of 96" in message
    assert not list(out.glob("leak.*"))
