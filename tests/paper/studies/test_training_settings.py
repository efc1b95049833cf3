"""Training sweeps: which settings, what a row says, and that finished rows are not computed again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, StoreError
from focus_runtime.fit.centroids import train_centroids
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.measure.perplexity import score
from paper.studies import training_settings as sweep
from paper.studies.training_settings import sweep_settings, training_sweep
from tests.helpers import build_model, build_tokenizer, random_ids

pytestmark = pytest.mark.slow  # many short trainings or compositions; they run in make test

TEXTS = ["the quick brown fox jumps over the lazy dog. " * 12, "pack my box with five dozen liquor jugs, he said; " * 8]
FOCUS = FocusConfig(num_groups=4, routing_dim=8, top_k=2, window=4, num_sinks=1)
PLAN = TrainConfig(steps=2, seq_len=32, batch=1, warmup=0, learning_rate=1e-2, calibration_sequences=2)


def run(vary, *, model=None, texts=TEXTS, validation=None, **options):
    validation = random_ids(32, batch=2) if validation is None else validation
    return training_sweep(
        model or build_model(), build_tokenizer(), texts, validation, FOCUS, PLAN, vary=vary, **options
    )


@pytest.fixture
def trained(monkeypatch):
    """Settings for which centroids were trained."""
    seen: list[Any] = []

    def recorded(*args, **kwargs):
        seen.append((args[3], args[4]))
        return train_centroids(*args, **kwargs)

    monkeypatch.setattr(sweep, "train_centroids", recorded)
    return seen


def changed(rows):
    return [row[0] for row in rows]


def test_one_change_at_a_time_or_every_combination():
    vary = {"num_groups": [2, 4], "learning_rate": [1e-2, 1e-3]}
    assert changed(sweep_settings(FOCUS, PLAN, vary)) == [{}, {"num_groups": 2}, {"learning_rate": 1e-3}]
    grid = sweep_settings(FOCUS, PLAN, vary, grid=True)
    assert changed(grid) == [{"num_groups": k, "learning_rate": r} for k in (2, 4) for r in (1e-2, 1e-3)]
    _, config, settings = grid[1]
    assert (config.num_groups, config.window, settings.learning_rate, settings.steps) == (2, 4, 1e-3, 2)
    assert sweep_settings(FOCUS, PLAN, {"num_groups": [1]})[1][1].top_k == 1


@pytest.mark.parametrize(
    "name",
    [
        "num_groups",
        "top_k",
        "window",
        "temperature",
        "sinkhorn_iterations",
        "routing_dim",
        "num_sinks",
        "seed",
        "hard",
        "gate",
    ],
)
def test_everything_worth_sweeping_can_be_varied(name):
    value = {"temperature": 0.5, "hard": True, "gate": "paper"}.get(name, 3)
    ((base, *_), (change, config, settings)) = sweep_settings(FOCUS, PLAN, {name: [value]})
    assert base == {}
    assert change == {name: value}
    assert getattr(config if hasattr(config, name) else settings, name) == value


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"depth": [1]}, "cannot vary 'depth'"),
        ({"window": []}, "window has"),
        ({"gate": "log"}, "gate has"),
        ({"window": [-1]}, "window is -1"),
    ],
)
def test_a_sweep_of_nothing_is_refused(vary, message):
    with pytest.raises(ConfigError, match=message):
        sweep_settings(FOCUS, PLAN, vary)


def test_a_row_is_what_training_and_scoring_give():
    model, validation = build_model(), random_ids(32, batch=2)
    _, row = run({"num_sinks": [0]}, model=model, top_ks=(1, 2, 5), sinks=(None, 3), validation=validation)
    assert json.loads(json.dumps(row)) == row
    assert [(s["num_sinks"], s["top_k"]) for s in row["scores"]] == [(0, 1), (0, 2), (3, 1), (3, 2)]
    assert row["full"]["perplexity"] == score(model, validation).perplexity
    centroids = train_centroids(model, build_tokenizer(), TEXTS, FOCUS.replace(num_sinks=0), PLAN)
    focus = compose(model, centroids, top_k=2, num_sinks=3)
    expected = score(focus, validation)
    focus.detach()
    assert row["scores"][3]["perplexity"] == expected.perplexity
    assert row["scores"][3]["nll"] == expected.nll.tolist()
    assert row["scores"][3]["retained_pairs"] == pytest.approx(expected.retained_pairs.mean())
    assert row["final_loss"] == centroids.training["final_loss"]
    assert row["settings"]["seed"] == 0
    assert row["config"]["num_sinks"] == 0


def test_finished_rows_are_not_computed_again(tmp_path, trained):
    file, seen = tmp_path / "sweep.jsonl", []
    rows = run({"window": [2]}, file=file)
    assert len(trained) == 2
    assert [json.loads(line) for line in file.read_text().splitlines()] == rows
    again = run({"window": [2, 8]}, file=file, on_row=seen.append)
    assert again[:2] == rows
    assert seen == again
    assert [config.window for config, _ in trained] == [4, 2, 8]


def test_an_interrupted_sweep_continues(tmp_path, trained):
    file = tmp_path / "sweep.jsonl"

    def crash(row):
        raise RuntimeError("the machine went down")

    with pytest.raises(RuntimeError):
        run({"window": [2]}, file=file, on_row=crash)
    with file.open("a") as stream:
        stream.write('{"key": "half a r')
    rows = run({"window": [2]}, file=file)
    assert [config.window for config, _ in trained] == [4, 2]
    assert run({"window": [2]}, file=file) == rows
    assert len(trained) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"model": build_model(seed=1)},
        {"texts": TEXTS[:1]},
        {"top_ks": (1,)},
        {"validation": random_ids(32, batch=2, seed=1)},
    ],
)
def test_a_row_of_another_model_text_or_question_does_not_count(changes, tmp_path, trained):
    file = tmp_path / "sweep.jsonl"
    run({"seed": [0]}, file=file)
    run({"seed": [0]}, file=file, **changes)
    assert len(trained) == 2


def test_a_file_that_is_something_else_is_left_alone(tmp_path):
    file = tmp_path / "novel.txt"
    file.write_text("It is a truth universally acknowledged\n")
    with pytest.raises(StoreError, match=r"line 1 of .* is no row of a sweep; name another file"):
        run({"window": [2]}, file=file)
    with pytest.raises(StoreError, match="cannot write"):
        run({"seed": [0]}, file=tmp_path / "novel.txt" / "sweep.jsonl")
    assert file.read_text() == "It is a truth universally acknowledged\n"
