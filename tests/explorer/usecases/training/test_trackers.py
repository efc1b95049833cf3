"""`--log-to`: what is refused, what every log gets, steps of a resume, failures; when wandb is used online."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import pytest

from focus_explorer.errors import InputError, TrainingStopped
from focus_explorer.usecases.training import trackers as module
from focus_explorer.usecases.training.trackers import (
    UNITS,
    LogTarget,
    TrackedRun,
    TrainingTrackers,
    WandbTracker,
    check_targets,
    parse_targets,
    result_numbers,
)


def test_a_program_with_or_without_a_place():
    assert parse_targets(["tensorboard:C:/runs", "wandb", "trackio:my project"]) == [
        LogTarget("tensorboard", "C:/runs"),
        LogTarget("wandb", "focus"),
        LogTarget("trackio", "my project"),
    ]
    assert parse_targets([]) == []


@pytest.mark.parametrize(
    ("words", "part"), [(["mlflow"], "expected tensorboard"), (["trackio", "trackio:a"], "trackio 2 times")]
)
def test_bad_words_are_refused(words, part):
    with pytest.raises(InputError, match=part):
        parse_targets(words)


def test_what_is_missing_is_refused_with_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    for kind in ("tensorboard", "trackio", "wandb"):
        with pytest.raises(InputError, match=rf"pip install 'focus-explorer\[{kind}\]'"):
            check_targets([LogTarget(kind, "x")])
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        check_targets([LogTarget("tensorboard", str(tmp_path / "file"))])
    check_targets([LogTarget("tensorboard", str(tmp_path / "new"))])


@pytest.mark.parametrize(
    ("mode", "has_key", "used"),
    [("online", True, None), ("online", False, "offline"), ("shared", False, "offline"), ("offline", False, None)],
)
@pytest.mark.parametrize("fields", [{}, {"x_transaction_log_flush_interval": 15.0}])
def test_without_a_key_it_writes_files_and_nobody_is_asked(monkeypatch, mode, has_key, used, fields):
    started = {}
    prompts = []

    def settings(**values):
        assert values.keys() - {"console"} == fields.keys()
        return values

    settings.model_fields = fields
    client = SimpleNamespace(
        setup=lambda: SimpleNamespace(settings=SimpleNamespace(mode=mode)),
        login=lambda *, prompt: prompts.append(prompt) or has_key,
        init=lambda **values: started.update(values),
        Settings=settings,
    )
    monkeypatch.setitem(sys.modules, "wandb", client)
    assert WandbTracker("p").open(TrackedRun(key="a-1", resumed=True), 3) is None
    assert (started["mode"], started["id"], started["resume"]) == (used, "a-1", "allow")
    assert not any(prompts)


TARGETS = [LogTarget("trackio", "p"), LogTarget("wandb", "p")]


class Program:
    """A program that holds what it was given; `broken` names the call that fails."""

    def __init__(self, place, holds=0):
        self.holds, self.broken = holds, ""
        self.rows, self.opened, self.closed = [], None, None

    def _meet(self, call):
        if call == self.broken:
            raise ConnectionError(f"no {call}")

    def open(self, run, step):
        self._meet("open")
        self.opened = (run, step)
        return self.holds

    def write(self, step, numbers):
        self._meet("write")
        print("a program's own words")
        self.rows.append((step, numbers))

    def close(self, step, numbers, notes, *, failed):
        self._meet("close")
        self.closed = (step, numbers, notes, failed)


@pytest.fixture
def programs(monkeypatch):
    """What the next `TrainingTrackers` opens."""
    made = {"trackio": Program("p"), "wandb": Program("p", holds=None)}
    monkeypatch.setattr(module, "CLASSES", {name: lambda place, one=one: one for name, one in made.items()})
    return made


def step(number, phase="", **numbers):
    values = dict.fromkeys((name for name in UNITS if name != "scored"), math.nan)
    return SimpleNamespace(step=number, phase=phase, **{**values, "loss": 2.0, **numbers})


def evaluation(number, **losses):
    scored = dict.fromkeys(losses, 10)
    return SimpleNamespace(step=number, losses=losses, scored=scored, mean=3.0, dominance=0.5, retained_pairs=0.25)


def trackers(tmp_path, **options):
    return TrainingTrackers(TARGETS, "my/run 1", {"seed": 0}, state=tmp_path / "a.json", **options)


def test_names_and_the_end(programs, tmp_path, capsys):
    with trackers(tmp_path) as logs:
        assert not programs["trackio"].opened
        logs.step(step(1, dominance=0.5))
        logs.evaluation(evaluation(1, **{"held-out": 3.0}))
        logs.evaluation(evaluation(2, code=3.5, prose=2.5))
        assert json.loads((tmp_path / "a.json").read_text())["key"] == logs.key
        logs.finish(
            "done", centroids_sha256="ab", validation={"full": 9.0, "k=1": {"perplexity": 9.5, "loss": math.inf}}
        )
    assert capsys.readouterr().out == ""  # which belongs to the result
    one = programs["trackio"]
    run, first = one.opened
    assert (first, run.key[:9], run.resumed, run.settings["seed"]) == (1, "my-run-1-", False, 0)
    assert run.settings["units"]["loss"] == "nats per token"
    assert one.rows[0] == (1, {"train/loss": 2.0, "train/dominance": 0.5})
    plain = {"held_out/loss": 3.0, "held_out/dominance": 0.5, "held_out/retained_pairs": 0.25, "held_out/scored": 10.0}
    assert one.rows[1] == (1, plain)
    named = {"held_out/code/loss": 3.5, "held_out/code/scored": 10.0}
    assert one.rows[2][1].items() >= {**named, "held_out/prose/loss": 2.5, "held_out/scored": 20.0}.items()
    numbers = {"result/full": 9.0, "result/k=1/perplexity": 9.5}
    assert one.closed == (2, numbers, {"result/status": "done", "result/centroids_sha256": "ab"}, False)
    assert not (tmp_path / "a.json").exists()
    assert result_numbers({"a": True, "b": "c"}) == {}


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt(), "stopped"), (TrainingStopped(2, None), "stopped"), (OSError("x"), "failed")],
)
def test_a_resume_writes_no_step_twice(programs, tmp_path, error, status):
    logs = trackers(tmp_path)
    for number in (1, 2):
        logs.step(step(number))
    logs.__exit__(type(error), error, None)
    for program in programs.values():
        assert program.closed[2]["result/status"] == status
        assert program.closed[3] == (status == "failed")
    programs["trackio"].holds = 2
    with trackers(tmp_path, resume=True) as again:
        assert again.key == logs.key
        again.evaluation(evaluation(1, code=1.0))  # a stop came before it
        assert programs["trackio"].opened[1] == 2
        assert programs["trackio"].opened[0].resumed
        for number in (2, 3):
            again.step(step(number))
    for program in programs.values():
        assert [number for number, numbers in program.rows if "train/loss" in numbers] == [1, 2, 3]
        assert [number for number, numbers in program.rows if "held_out/loss" in numbers] == [1]
    (tmp_path / "a.json").write_text("{")
    with trackers(tmp_path, resume=True) as new:
        assert new.key != logs.key


def test_parts_of_a_training_are_counted_on(programs, tmp_path):
    with trackers(tmp_path, phases={"centroids": 0, "weights": 10}) as logs:
        logs.step(step(10, "centroids"))
        logs.step(step(1, "weights"))
    assert programs["wandb"].rows == [(10, {"centroids/loss": 2.0}), (11, {"weights/loss": 2.0})]


@pytest.mark.parametrize("call", ["open", "write", "close"])
def test_a_program_that_fails_is_said_once_and_the_others_go_on(programs, tmp_path, call):
    programs["wandb"].broken = call
    said = []
    with trackers(tmp_path, warn=said.append) as logs:
        for number in (1, 2):
            logs.step(step(number))
    assert said == [f"Weights & Biases takes no more of this training, which continues (no {call})"]
    assert len(programs["trackio"].rows) == 2
    assert programs["trackio"].closed


def test_a_state_that_cannot_be_kept_ends_no_log(programs, tmp_path):
    said = []
    (tmp_path / "file").write_text("")
    with TrainingTrackers(TARGETS, "a", {}, state=tmp_path / "file" / "a.json", warn=said.append) as logs:
        for number in (1, 2):
            logs.step(step(number))
    assert len(said) == 1
    assert "a log of its own" in said[0]
    assert len(programs["wandb"].rows) == 2
