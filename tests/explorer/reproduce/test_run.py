"""Every report on a tiny model, its forms on disk, and what a user can get wrong."""

from __future__ import annotations

import csv
import dataclasses
import json
import math

import pytest
import torch

from focus_explorer.cli.main import main
from focus_explorer.errors import InputError, TrainingStopped
from focus_explorer.reproduce.figure import report_figure
from focus_explorer.reproduce.lab import Lab
from focus_explorer.reproduce.render import cell, comma_separated, latex, markdown, write
from focus_explorer.reproduce.report import Claim, Column, Figure, Report, Series, agreed, decided, unharmed
from focus_explorer.reproduce.run import REPORTS, find
from focus_explorer.reproduce.scale import SCALES, scale_named
from focus_explorer.reproduce.weights import _twin_claims, word_frequencies
from focus_runtime.measure.intervals import Interval
from tests.helpers import build_model, build_tokenizer

SENTENCES = [f"On day {n} the letter from Anne said that matter {n * 7 % 90} was at an end." for n in range(90)]
TEXT = " ".join(SENTENCES)
UNIT = dataclasses.replace(
    SCALES["tiny"],
    dtype="float32",
    seq_len=96,
    window=8,
    steps=2,
    weight_steps=1,
    scratch_steps=1,
    seeds=(0,),
    val_sequences=3,
    study_steps=2,
    study_len=32,
    sweep_steps=1,
    speed_lengths=(64, 128),
    long_lengths=(48, 96),
    task_items=3,
)
NEED_HARNESS = {"table1", "table2", "table4"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model saved with its tokenizer, as --model takes it."""
    path = tmp_path_factory.mktemp("model")
    build_model(max_position_embeddings=256, initializer_range=0.02).save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def lab(folder, tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    return Lab(UNIT, str(folder), [TEXT], [TEXT[::-1] + " " + TEXT], {"train": ["a"], "val": ["b"]}, work)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REPORTS if not name.startswith("figure")])
def test_every_report_is_measured_and_written(name, lab, tmp_path, monkeypatch):
    if name in NEED_HARNESS:
        pytest.importorskip("lm_eval")
        pytest.importorskip("peft")
    monkeypatch.setattr("focus_explorer.reproduce.figure.draw", lambda report: b"<svg/>")
    report = find(name)(lab)
    assert report.name == name
    assert report.rows
    keys = {column.key for column in report.columns}
    empty = {key for key in keys if all(row.get(key) is None for row in report.rows)}
    assert not {key for key in empty if not key.startswith("paper")} - {"short", "long"}  # too little text for these
    for row in report.rows:
        if "ppl" in row and row.get("dominance") is not None:
            assert row["retained"] is not None, "a perplexity stands beside dominance and pairs kept"
    assert all(claim.evidence and ("nan" not in claim.evidence or claim.held is None) for claim in report.claims)
    paths = write(report, tmp_path, log="a line\n")
    assert {path.suffix for path in paths} >= {".md", ".csv", ".tex", ".json", ".log"}
    stored = json.loads((tmp_path / f"{name}.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} in JSON"))
    assert len(stored["rows"]) == len(report.rows)
    with (tmp_path / f"{name}.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == len(report.rows)
    if report.figure is not None:
        assert len(report_figure(report).data) == len(report.figure.series)


def test_trained_centroids_are_found_again(lab, monkeypatch):
    first = lab.trained(0, num_groups=4)
    monkeypatch.setattr("focus_explorer.reproduce.lab.train_centroids", lambda *a, **k: pytest.fail("trained again"))
    assert lab.trained(0, num_groups=4).sha256 == lab.trained(0, num_groups=4).sha256 != ""
    assert first.config == lab.trained(0, num_groups=4).config
    assert lab.key("a", 1) != lab.key("a", 2)


@pytest.mark.slow
def test_accuracy_is_measured_where_the_text_allows(folder, tmp_path):
    pytest.importorskip("lm_eval")
    names = ("Anne", "Emma", "Jane", "Lucy")
    text = " ".join(
        f"{a}, as it was, saw {a}. And after some long while there came {b} with a great many letters and thanked {a}."
        for _ in range(30)
        for a in names
        for b in names
        if a != b
    )
    scale = dataclasses.replace(UNIT, seq_len=160, window=64)
    lab = Lab(scale, str(folder), [text], [text], {"train": ["a"], "val": ["b"]}, tmp_path)
    found = lab.accuracy(lab.model)
    assert found["beyond"] == 1.0
    assert 0 <= found["short"].low <= found["short"].value <= 1
    assert found["long"].high <= 1
    assert found["tests"]["long"]["difference"]["value"] == 0.0


def report(**changes):
    columns = [
        Column("name", "method"),
        Column("ppl", "perplexity"),
        Column("kept", "pairs kept", 1, percent=True),
        Column("paper_ppl", "perplexity", 1, paper=True),
    ]
    rows = [
        {"name": "a | b & 5 %", "ppl": Interval(2.0, 1.5, 2.5, 3), "kept": 0.5, "paper_ppl": 42.8},
        {"name": "full", "ppl": math.nan, "kept": None},
    ]
    claims = [Claim("it works", True, "2 of 2"), Claim("it flies", None, "not tried")]
    values = {
        "name": "table1",
        "title": "A title",
        "columns": columns,
        "rows": rows,
        "setting": {"K": 4},
        "claims": claims,
    }
    return Report(**{**values, **changes})


def test_markdown_shows_intervals_claims_and_the_papers_numbers_apart():
    text = markdown(report())
    assert "| method | perplexity | pairs kept | paper: perplexity |" in text
    assert "| a \\| b & 5 % | 2.00 (1.50 to 2.50) | 50.0 % | 42.8 |" in text
    assert "| full | – | – | – |" in text
    assert "- **held**: it works (2 of 2)" in text
    assert "- **not decided here**: it flies (not tried)" in text
    assert "- K: 4" in text


def test_csv_gives_full_precision_and_the_ends_of_intervals():
    rows = list(csv.reader(comma_separated(report()).splitlines()))
    assert rows[0] == ["name", "ppl", "ppl_low", "ppl_high", "kept", "paper_ppl"]
    assert rows[1] == ["a | b & 5 %", "2.0", "1.5", "2.5", "0.5", "42.8"]


def test_latex_escapes_and_states_the_setting():
    text = latex(report())
    assert r"a | b \& 5\,\% & 2.00 (1.50 to 2.50) & 50.0\,\% & 42.8 \\" in text
    assert r"\caption{A title. K: 4.}" in text
    assert r"\begin{tabular}{lrrr}" in text


def test_cells():
    assert cell(None, Column("a", "a")) == "–"
    assert cell(1234567, Column("a", "a", 0)) == "1,234,567"
    assert cell(0.123, Column("a", "a", 1, percent=True)) == "12.3 %"
    assert cell(Interval(1.0, None, None, 1), Column("a", "a")) == "1.00"
    assert cell(0.0123, Column("a", "a", percent=True, signed=True)) == "+1.23 %"


def test_a_figure_has_its_intervals_and_marks():
    figure = Figure("line", "x", "y", [Series("a", [1, 2], [3.0, 4.0], [2.0, 3.0], [4.0, 6.0])], marks={"full": 3.5})
    drawn = report_figure(report(figure=figure))
    assert list(drawn.data[0].error_y.array) == [1.0, 2.0]
    assert list(drawn.data[0].error_y.arrayminus) == [1.0, 1.0]
    assert drawn.layout.shapes[0].y0 == 3.5


def test_without_a_browser_the_numbers_are_written_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("focus_explorer.reproduce.figure.draw", lambda report: None)
    figure = Figure("bar", "x", "y", [Series("a", ["p"], [3.0])])
    paths = write(report(figure=figure), tmp_path / "new")
    assert {path.suffix for path in paths} == {".md", ".csv", ".tex", ".json"}
    assert "needs Chrome or Chromium" in (tmp_path / "new" / "table1.md").read_text()
    assert not [path for path in (tmp_path / "new").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table99"], "invalid choice: 'table99'"),
        (["table7", "--scale", "huge"], "there is no scale 'huge'; expected tiny or small or paper"),
        (["table7", "--scale", "small"], "needs text of your own; expected --text FOLDER --val FILE"),
        (["table7", "--text", "{file}"], "no held-out text was given"),
        (["table7", "--steps", "0"], "--steps is 0; expected at least 1"),
        (["table7", "--out", "{file}/under"], "cannot write to"),
        (["table7", "--text", "{empty}", "--val", "{file}"], "has no .txt files; expected text files"),
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


def test_the_scale_of_the_paper_says_what_it_needs(folder, tmp_path, capsys):
    """Offline, what only the hub has is named, and nothing half-made is left."""
    text = tmp_path / "a.txt"
    text.write_text(TEXT * 30)
    words = ["reproduce", "table3", "--scale", "paper", "--text", str(text), "--val", str(text), "--model", str(folder)]
    assert main([*words, "--out", str(tmp_path / "out"), "--steps", "1"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), TrainingStopped(3, None)])
def test_stopping_says_what_is_kept(stop, tmp_path, monkeypatch, capsys):
    def interrupted(*arguments, **settings):
        raise stop

    monkeypatch.setattr("focus_explorer.cli.reproduce.reproduce", interrupted)
    assert main(["reproduce", "table7", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("stopped; reports written so far")


def test_scales_are_named():
    assert scale_named("small").seeds == (0, 1, 2)
    with pytest.raises(InputError, match="there is no scale"):
        scale_named("medium")


def test_every_report_has_a_function():
    assert all(callable(find(name)) for name in REPORTS)


def test_a_claim_is_decided_by_its_interval():
    clear, across = Interval(-0.02, -0.03, -0.01, 12), Interval(-0.02, -0.05, 0.01, 12)
    assert decided(clear, below=0.0) is True
    assert decided(clear, above=0.0) is False
    assert decided(across, below=0.0) is None
    assert decided(Interval(-0.02, None, None, 1), below=0.0) is None
    assert (agreed([True, True]), agreed([True, None]), agreed([None, False])) == (True, None, False)


def test_no_loss_is_said_only_where_the_items_can_tell():
    lost = {"difference": {"value": -0.3, "low": -0.5, "high": -0.1}, "p_value": 0.01}
    gained = {"difference": {"value": 0.3, "low": 0.1, "high": 0.5}, "p_value": 0.01}
    same = {"difference": {"value": 0.0, "low": 0.0, "high": 0.0}, "p_value": 1.0}
    wide = {"difference": {"value": -0.05, "low": -0.2, "high": 0.1}, "p_value": 0.6}
    assert unharmed(lost, 100) is False
    assert unharmed(gained, 100) is True
    assert unharmed(same, 100) is True
    assert unharmed(same, 16) is None
    assert unharmed(wide, 16) is None


def test_a_model_no_better_than_token_frequencies_decides_nothing():
    counts = torch.tensor([0, 0, 0, 1])
    sequences = torch.tensor([[1, 0, 1], [0, 1, 1]])
    wanted = math.exp(-(math.log(4 / 6) + 3 * math.log(2 / 6)) / 4)  # vocabulary of two, one added to each count
    assert word_frequencies(counts, sequences, 2) == pytest.approx(wanted)

    def rows(twin):
        better = Interval(-0.01, -0.02, -0.005, 12)
        return [
            {"method": "m", "attention": "full attention", "ppl": twin},
            {"method": "m", "attention": "Focus, k = 2", "ppl": Interval(twin, None, None, 12), "relative": better},
        ]

    assert _twin_claims(rows(50.0), 900.0)[0].held is True
    assert _twin_claims(rows(890.0), 900.0)[0].held is None
