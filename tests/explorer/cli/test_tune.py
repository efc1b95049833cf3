"""The tune command on a tiny model: what it writes is what it measured, and everything that is wrong is one line."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from focus_explorer.cli.main import main
from focus_runtime.budget import read_budget
from focus_runtime.composition.attach import compose
from focus_runtime.measure.perplexity import compare, score
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.text.sequences import encode_texts, even_sequences
from tests.explorer.cli.conftest import one_error
from tests.helpers import build_centroids
from tests.runtime.evaluate.test_last_word import novel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def centroid_file(tmp_path_factory, model_folder):
    model, _ = load_model(model_folder)
    path = tmp_path_factory.mktemp("centroids") / "c.safetensors"
    save_centroids(build_centroids(model, window=4), path)
    return str(path)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for number in (1, 2):
        (folder / f"{number}.txt").write_text(novel(number, 60))
    return folder


@pytest.fixture
def tune(tmp_path, model_folder, centroid_file, texts):
    def run(*more, out=tmp_path / "tuned.safetensors", text=None):
        outs = [str(path) for path in (out if isinstance(out, list) else [out])]
        words = text or [f"one={texts / '1.txt'}", f"two={texts / '2.txt'}"]
        named = [word for one in words for word in ("--text", one)] + ["--out", *outs]
        small = ["--seq-len", "48", "--sequences", "1", "--held-out-sequences", "3"]
        where = ["--model", model_folder, "--centroids", centroid_file, "--db", str(tmp_path / "runs.duckdb")]
        return main(["tune", *named, *small, *where, *map(str, more)])

    return run


def test_the_file_has_the_budget_and_what_was_measured(tune, tmp_path, capsys, model_folder, texts):
    assert tune("--pairs", "80%", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    file = load_centroids(printed["written"])
    assert [entry.to_dict() for entry in file.config.budget] == printed["budget"] != []
    record = file.training["budget"]
    assert record == printed["record"]
    assert (record["target"], record["met"], record["calibration"]) == ({"pairs": 0.8}, True, {"one": 1, "two": 1})
    assert record["pairs_counted_at"] == 48
    chosen = next(point for point in record["points"] if point["budget"] == printed["budget"])
    assert chosen["retained_pairs"] <= 0.8
    shares = [point["retained_pairs"] for point in record["points"]]
    assert shares == sorted(shares)
    assert not list(tmp_path.glob("*.json"))  # a finished search leaves no measurements behind
    # held-out numbers are those of the runtime on the sequences that calibration left out
    model, tokenizer = load_model(model_folder)
    every = even_sequences(encode_texts(tokenizer, [(texts / "1.txt").read_text()], 1), 4, 48)
    full = score(model, every[1:])
    expected = compare(full, score(compose(model, file), every[1:]))
    row = record["held_out"]["one"]
    assert row["relative_difference"] == expected["relative_difference"]
    assert row["retained_pairs"] == expected["retained_pairs"]


def test_the_record_says_on_which_balance_it_rests(tune, tmp_path, centroid_file):
    centroids, balanced = load_centroids(centroid_file), {"sequences": 3, "seq_len": 48}
    centroids.training = centroids.training | {"balanced": balanced}
    save_centroids(centroids, tmp_path / "balanced.safetensors")
    assert tune("--pairs", "80%", "--centroids", tmp_path / "balanced.safetensors") == 0
    training = load_centroids(tmp_path / "tuned.safetensors").training
    assert training["balanced"] == training["budget"]["balanced"] == balanced


@pytest.mark.long
def test_windows_may_grow_while_budgets_are_measured(tune, tmp_path, capsys):
    assert tune("--pairs", "80%", "--json") == 0
    plain = json.loads(capsys.readouterr().out)["record"]
    assert "window_growth" not in plain
    assert tune("--pairs", "80%", "--window-growth", "12", "40", out=tmp_path / "growing.safetensors") == 0
    capsys.readouterr()
    file = load_centroids(tmp_path / "growing.safetensors")
    assert file.config.window_growth == (12, 40)
    record = file.training["budget"]
    assert record["window_growth"] == [12, 40]
    assert record["without_budget"]["retained_pairs"] > plain["without_budget"]["retained_pairs"]
    one_error(capsys, tune("--pairs", "80%", "--window-growth", "0", "4"), "window_growth is (0, 4)")


@pytest.mark.parametrize(
    ("budget", "options", "measured"),
    [
        ([{"layer": 0, "query_head": 1, "full": True}], (), True),
        ([{"layer": 0, "query_head": 1, "full": True}], ("--heads", "key-value"), False),
        ([{"layer": 0, "head": 1, "top_k": 2, "window": 16}], (), True),
        ([{"layer": 0, "head": 1, "top_k": 2, "window": 16}], ("--head-top-k", "none"), False),
        ([{"layer": 0, "head": 1, "window": 16}], ("--window", "12"), False),  # it is the budget of other settings
        ([{"layer": 0, "query_head": 40, "full": True}], (), False),  # this model has no such head
    ],
)
def test_the_budget_of_the_file_is_measured_where_the_options_allow_it(
    tune, tmp_path, centroid_file, monkeypatch, budget, options, measured
):
    import focus_runtime.fit.tune as module

    file, seen = load_centroids(centroid_file), []

    def noted(*_, own, **__):
        seen.append(own)
        raise KeyboardInterrupt  # the search itself is not of interest

    entries = read_budget(budget)
    budgeted = tmp_path / "budgeted.safetensors"
    save_centroids(dataclasses.replace(file, config=file.config.replace(budget=entries)), budgeted)
    monkeypatch.setattr(module, "search", noted)
    assert tune("--pairs", "99%", "--centroids", budgeted, *options) == 130
    assert seen == [entries if measured else ()]


@pytest.mark.long
def test_text_at_several_lengths(tune, texts, capsys, model_folder):
    """Each length counts for as many tokens; pairs are those of the shortest, whatever the order."""
    (texts / "3.txt").write_text(novel(3, 60))
    held_out = ["--held-out", f"three={texts / '3.txt'}"]
    assert tune("--pairs", "80%", "--json", *held_out, "--seq-len", "96", "32", "--sequences", "3") == 0
    printed = json.loads(capsys.readouterr().out)
    record = printed["record"]
    calibration = {"one, 32 tokens": 3, "two, 32 tokens": 3, "one, 96 tokens": 1, "two, 96 tokens": 1}
    assert record["calibration"] == calibration
    assert record["pairs_counted_at"] == 32
    [chosen] = [point for point in record["points"] if point["budget"] == printed["budget"]]
    assert list(chosen["excess"]) == list(calibration)
    assert {name: row["sequences"] for name, row in record["held_out"].items()} == {
        "three, 32 tokens": 3,
        "three, 96 tokens": 2,
    }
    model, tokenizer = load_model(model_folder)
    focus = compose(model, load_centroids(printed["written"]))
    both = [encode_texts(tokenizer, [(texts / name).read_text()], 1) for name in ("1.txt", "2.txt")]
    shares = [score(focus, ids[None]).retained_pairs.mean() for own in both for ids in even_sequences(own, 3, 32)]
    assert chosen["retained_pairs"] == pytest.approx(sum(shares) / len(shares))


def test_a_target_that_cannot_be_met_writes_nothing_unless_told(tune, tmp_path, capsys, monkeypatch):
    from focus_runtime.fit.budget_meter import BudgetMeter

    out = tmp_path / "never.safetensors"
    assert tune("--pairs", "1%", out=out) == 3
    assert f"no budget meets the target, so {out} was not written" in capsys.readouterr().err
    assert not out.exists()
    one_error(capsys, tune("--pairs", "1%", out=out), "never.safetensors.search.json keeps", "add --resume")
    monkeypatch.setattr(BudgetMeter, "measure", None)  # all is known
    assert tune("--pairs", "1%", "--resume", "--write-best", out=out) == 0
    assert load_centroids(out).training["budget"]["met"] is False
    assert not list(tmp_path.glob("*.search.*"))


def test_text_of_the_check_is_left_out_of_the_search(tune, texts, tmp_path, capsys):
    (tmp_path / "both").mkdir()
    for name in ("1.txt", "2.txt"):
        (tmp_path / "both" / name).write_text((texts / name).read_text())
    held_out = ["--held-out", texts / "2.txt"]
    one_error(capsys, tune("--pairs", "80%", *held_out), "the domain 'two'", "besides the held-out one")
    records = []
    for text in (tmp_path / "both", texts / "1.txt"):
        out = tmp_path / f"{text.name}.safetensors"
        assert tune("--pairs", "80%", "--json", *held_out, out=out, text=[str(text)]) == 0
        records.append(json.loads(capsys.readouterr().out)["record"])
    assert records[0] == records[1]


@pytest.mark.long
def test_a_stopped_search_continues_with_the_same_result(tune, tmp_path, capsys, monkeypatch):
    from focus_runtime.fit.budget_meter import BudgetMeter

    measure, calls = BudgetMeter.measure, []
    monkeypatch.setattr(BudgetMeter, "measure", lambda self, budget: calls.append(budget) or measure(self, budget))
    assert tune("--pairs", "80%", "--json") == 0
    whole, expected = json.loads(capsys.readouterr().out), len(calls)
    calls.clear()

    def interrupted(self, budget):
        if len(calls) == 4:
            raise KeyboardInterrupt
        calls.append(budget)
        return measure(self, budget)

    monkeypatch.setattr(BudgetMeter, "measure", interrupted)
    out = tmp_path / "again.safetensors"
    assert tune("--pairs", "80%", "--json", out=out) == 130
    assert "Continue with" in capsys.readouterr().err
    assert not out.exists()
    monkeypatch.setattr(BudgetMeter, "measure", lambda self, budget: calls.append(budget) or measure(self, budget))
    assert tune("--pairs", "80%", "--json", "--resume", out=out) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert resumed["record"] == whole["record"]
    assert len(calls) == len({*calls}) == expected  # none twice
    assert not list(tmp_path.glob("*.search.*"))


@pytest.mark.long
def test_several_targets_are_searched_together(tune, tmp_path, capsys, monkeypatch):
    """Every file is what a search of its own gives; what both need is estimated and measured once."""
    from focus_runtime.fit import budget_meter as costs
    from focus_runtime.fit.budget_meter import BudgetMeter

    changes, measure, read, measured = costs._changes, BudgetMeter.measure, [], []
    monkeypatch.setattr(costs, "_changes", lambda *args, **named: read.append(args) or changes(*args, **named))
    monkeypatch.setattr(BudgetMeter, "measure", lambda self, budget: measured.append(budget) or measure(self, budget))
    alone = {}
    for pairs in ("80%", "60%"):
        assert tune("--pairs", pairs, "--json") == 0
        alone[pairs] = json.loads(capsys.readouterr().out)
    assert len(read) == 4
    different = len({*measured})
    read.clear()
    measured.clear()
    files = [str(tmp_path / name) for name in ("more.safetensors", "fewer.safetensors")]
    assert tune("--pairs", "80%", "--json", "--pairs", "60%", out=files) == 0
    more, fewer = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (more["record"], fewer["record"]) == (alone["80%"]["record"], alone["60%"]["record"])
    assert [more["written"], fewer["written"]] == files
    for file, printed in zip(files, (more, fewer), strict=True):
        content = load_centroids(file)
        assert [entry.to_dict() for entry in content.config.budget] == printed["budget"]
        assert content.training["budget"] == printed["record"]
    assert len(read) == 2
    assert len(measured) == len({*measured}) == different
    assert not list(tmp_path.glob("*.search.*"))


def test_of_several_targets_those_met_are_written(tune, tmp_path, capsys):
    files = [tmp_path / "met.safetensors", tmp_path / "never.safetensors"]
    assert tune("--pairs", "0.8", "1%", out=files) == 3
    printed = capsys.readouterr()
    assert f"so {files[1]} was not written" in printed.err
    assert re.search(r"\d+ (query )?heads.*: .*\d+ without groups", printed.out)
    for part in ("pairs kept", "on held-out text", f"written      {files[0]}"):
        assert part in printed.out
    assert [file.exists() for file in files] == [True, False]


def test_measurements_of_another_search_are_refused(tune, tmp_path, capsys):
    out = tmp_path / "x.safetensors"
    (tmp_path / "x.safetensors.search.json").write_text(json.dumps({"identity": {"model": "other"}, "measured": []}))
    one_error(capsys, tune("--pairs", "80%", "--resume", out=out), "of a search with another model, text, centroids")
    (tmp_path / "x.safetensors.search.json").write_text("{")
    one_error(capsys, tune("--pairs", "80%", "--resume", out=out), "cannot be read")
    one_error(capsys, tune("--pairs", "50%", out=tmp_path / "c.bin"), "a name ending in .safetensors")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--loss", "1%", "--pairs", "30%"), ["not allowed with"]),
        ((), ["--loss", "--pairs", "required"]),
        (("--loss", "little"), ["--loss is 'little'", "such as 1%"]),
        (("--loss", "-0.1"), ["target loss is -0.1"]),
        (("--pairs", "200%"), ["share of pairs is 2.0"]),
        (("--pairs", "50%", "--head-top-k", "two"), ["--head-top-k is 'two'"]),
        (("--pairs", "50%", "--head-window", "wide"), ["--head-window is 'wide'"]),
        (("--pairs", "50%", "--head-top-k", "-1"), ["top_k is -1"]),
        (("--pairs", "50%", "--heads", "all"), ["--heads"]),
        (("--pairs", "50%", "--head-top-k", "9"), ["top_k is 9 but these centroids have 4 groups"]),
        (("--pairs", "50%", "--seq-len", "4000"), ["the domain 'one' has", "give more text or a shorter --seq-len"]),
        (("--pairs", "50%", "--seq-len", "3"), ["--seq-len is 3"]),
        (("--pairs", "50%", "--seq-len", "48", "3"), ["--seq-len is 3"]),
        (("--pairs", "50%", "--seq-len", "32", "48"), ["no text is given for the check", "give --held-out"]),
        (("--pairs", "50%", "40%"), ["2 targets and 1 different --out files", "one file for each target"]),
        (("--pairs", "50%", "--sequences", "0"), ["0 calibration"]),
        (("--pairs", "50%", "--held-out-sequences", "1"), ["1 held-out sequences"]),
        (("--pairs", "50%", "--centroids", "random"), ["random centroids cannot be tuned"]),
        (("--pairs", "50%", "--text", "a=nowhere.txt"), ["nowhere.txt"]),
        (("--pairs", "50%", "--text", "a=x.txt", "a=y.txt"), ["--text has two domains named 'a'"]),
    ],
)
def test_what_is_wrong_is_one_line(words, parts, tune, tmp_path, capsys):
    one_error(capsys, tune(*words), *parts)
    assert not list(tmp_path.glob("*.safetensors*"))


def test_key_value_heads_alone_if_asked(tune, capsys):
    assert tune("--pairs", "80%", "--heads", "key-value", "--head-top-k", "none", "--json") == 0
    budget = json.loads(capsys.readouterr().out)["budget"]
    assert budget
    assert not any("query_head" in entry or entry.get("top_k") == 0 for entry in budget)
