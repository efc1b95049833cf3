"""Evaluations on held-out text during a training: by domain, without a trace, and an early end with the best."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TrainingError, TrainingStopped
from focus_runtime.fit import centroids as module
from focus_runtime.fit.centroids import train_centroids
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.fit.validation import Evaluation, ValidationPlan
from focus_runtime.measure.perplexity import score
from tests.helpers import build_model, build_tokenizer, random_ids
from tests.runtime.fit.tiny import FOCUS, PLAN, TEXTS, same

HELD_OUT = {"novels": random_ids(32, batch=2, seed=1), "code": random_ids(24, batch=3, seed=2)}
INFERENCE = FocusConfig(**FOCUS | {"window": 9})


def train(patience=0, every=2, **changes):
    """A short training with evaluations; returns the centroids, the steps' losses and the evaluations."""
    passed = ("checkpoint", "resume", "should_stop", "on_snapshot", "snapshot_every")
    options = {name: changes.pop(name) for name in passed if name in changes}
    plan = None if every == 0 else ValidationPlan(sequences=HELD_OUT, every=every, patience=patience)
    losses: list[float] = []
    evaluations: list[Evaluation] = []
    made = train_centroids(
        build_model(),
        build_tokenizer(),
        TEXTS,
        FocusConfig(**FOCUS),
        TrainConfig(**(PLAN | {"batch": 1} | changes)),
        inference=INFERENCE,
        validation=plan,
        on_step=lambda step: losses.append(step.loss),
        on_evaluation=evaluations.append,
        **options,
    )
    return made, losses, evaluations


@functools.cache
def evaluated():
    """An uninterrupted training, evaluated at steps 2, 4 and, as the last, 5."""
    return train(steps=5)


@pytest.mark.slow
def test_evaluations_change_nothing_and_the_last_scores_the_file_that_is_written():
    made, losses, evaluations = evaluated()
    assert [one.step for one in evaluations] == [2, 4, 5]
    alone, same_losses, _ = train(every=0, steps=5)
    assert same_losses == losses
    assert same(alone, made)
    last = evaluations[-1]
    focus = compose(build_model(), made, window=9)
    for name, ids in HELD_OUT.items():
        row = score(focus, ids)
        assert last.losses[name] == pytest.approx(math.log(row.perplexity), abs=1e-6)
        assert last.scored[name] == row.scored.sum() == ids.shape[0] * (ids.shape[1] - 1)
    assert last.mean == pytest.approx(sum(last.losses.values()) / 2)
    assert made.training["evaluations"][-1]["losses"] == last.losses
    assert made.training["evaluations"][-1]["mean"] == last.mean


MEANS = [4.0, 3.0, 3.5, 3.0, 3.1, 2.0]
EARLY = {"every": 1, "patience": 3, "steps": 12}


@pytest.fixture
def scripted(monkeypatch):
    """The mean losses of the evaluations are those of `MEANS`."""
    original = module.evaluate_training

    def evaluate(*arguments):
        made = original(*arguments)
        mean = MEANS[made.step - 1]
        return replace(made, losses={"novels": mean + 0.5, "code": mean - 0.5})

    monkeypatch.setattr(module, "evaluate_training", evaluate)


def tensors(centroids):
    return [p.clone() for _, r in sorted(centroids.routers.items()) for p in (r.projection, r.centroids)]


@functools.cache
def early():
    """A training that ended early, and its routers after every step; only where evaluations are scripted."""
    kept = {}
    return *train(
        **EARLY, on_snapshot=lambda step, centroids: kept.update({step: tensors(centroids)}), snapshot_every=1
    ), kept


@pytest.mark.slow
def test_an_early_end_writes_the_best(scripted):
    made, losses, evaluations, kept = early()
    assert len(losses) == len(evaluations) == 5  # equal is no improvement
    assert made.training["stopped"] == "no lower held-out loss in 3 evaluations, at step 5"
    assert (made.training["steps"], made.training["planned_steps"]) == (2, 12)
    assert made.training["final_loss"] == losses[1]
    assert made.training["tokens_seen"] == 2 * 32
    assert [one["mean"] for one in made.training["evaluations"]] == MEANS[:5]
    assert all(torch.equal(a, b) for a, b in zip(tensors(made), kept[2], strict=True))
    assert not torch.equal(kept[2][0], kept[5][0])


@pytest.mark.parametrize("stop_after", [2, 3])
@pytest.mark.slow
def test_a_resumed_training_ends_where_the_uninterrupted_one_does(stop_after, scripted, tmp_path):
    """Stopped before and after the best evaluation; the checkpoint keeps the best and the count."""
    whole, losses, evaluations, _ = early()
    file, seen = tmp_path / "run.ckpt", []
    with pytest.raises(TrainingStopped):
        train(**EARLY, checkpoint=file, should_stop=lambda: seen.append(1) or len(seen) == stop_after)
    resumed, rest, others = train(**EARLY, checkpoint=file, resume=True)
    assert rest == losses[stop_after:]
    assert others == evaluations[stop_after:]
    assert same(resumed, whole)
    changing = ("seconds",)
    records = [{k: v for k, v in made.training.items() if k not in changing} for made in (whole, resumed)]
    assert records[0] == records[1]


@pytest.mark.slow
def test_an_evaluation_that_a_stop_prevented_is_made_up_for(tmp_path, monkeypatch):
    whole, losses, evaluations = evaluated()
    original, calls = module.evaluate_training, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(module, "evaluate_training", interrupted)
    file = tmp_path / "run.ckpt"
    with pytest.raises(TrainingStopped, match="after step 4"):
        train(steps=5, checkpoint=file)
    resumed, rest, others = train(steps=5, checkpoint=file, resume=True)
    assert rest == losses[4:]
    assert others == evaluations[1:]
    assert same(resumed, whole)
    with pytest.raises(TrainingError, match="another training: validation was"):
        train(every=3, steps=5, checkpoint=file, resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"every": 0}, "every is 0; expected at least 1 step"),
        ({"patience": -1}, "patience is -1"),
        ({"sequences": {}}, "no held-out text"),
    ],
)
def test_plans_that_cannot_be_are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        ValidationPlan(**({"sequences": HELD_OUT, "every": 1} | changes))
