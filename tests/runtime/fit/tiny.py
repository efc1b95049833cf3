"""A short training of a tiny model, which several test files start."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from focus_runtime.config import FocusConfig
from focus_runtime.fit.centroids import train_centroids
from focus_runtime.fit.settings import TrainConfig
from tests.helpers import build_model, build_tokenizer

TEXTS = ["the quick brown fox jumps over the lazy dog. " * 12, "pack my box with five dozen liquor jugs, he said; " * 8]
FOCUS: dict[str, Any] = {"num_groups": 4, "routing_dim": 8, "top_k": 1, "window": 4, "num_sinks": 1}
PLAN: dict[str, Any] = {
    "steps": 6,
    "seq_len": 32,
    "batch": 2,
    "warmup": 1,
    "learning_rate": 1e-2,
    "calibration_sequences": 4,
    "checkpoint_every": 2,
}


def train(model=None, *, focus=None, on_step=None, texts=TEXTS, checkpoint=None, resume=False, **changes):
    steps: list[Any] = []

    def record(step):
        steps.append(step)
        if on_step is not None:
            on_step(step)

    plan = TrainConfig(**(PLAN | {name: value for name, value in changes.items() if name != "should_stop"}))
    centroids = train_centroids(
        model or build_model(),
        build_tokenizer(),
        texts,
        FocusConfig(**(FOCUS | (focus or {}))),
        plan,
        on_step=record,
        checkpoint=checkpoint,
        resume=resume,
        should_stop=changes.get("should_stop", lambda: False),
    )
    return centroids, [step.loss for step in steps]


@functools.cache
def whole(**changes):
    """An uninterrupted training, which no test changes."""
    return train(**changes)


def state(centroids):
    return [v.clone() for _, r in sorted(centroids.routers.items()) for v in r.state_dict().values()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(state(a), state(b), strict=True))


def environment():
    """Of a process that imports this checkout."""
    here = os.getcwd()
    return {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.join(here, "runtime"), here]), "OMP_NUM_THREADS": "1"}
