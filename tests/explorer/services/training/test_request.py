"""The options of a training on their way to another process."""

from __future__ import annotations

import pytest

from focus_explorer.cli.main import main
from focus_explorer.services.training.request import TrainRequest

pytestmark = pytest.mark.slow  # with the other tests of training


def test_options_survive_the_way_to_another_process(monkeypatch):
    import focus_explorer.services.training.train as training

    request = TrainRequest(
        text=("a b.txt",),
        out="x y.safetensors",
        val=("v.txt",),
        name="It's mine",
        groups=8,
        train_window=32,
        hard=True,
        lr=1e-4,
        layers="0,3",
        precision="bf16",
        gradient_checkpointing=True,
        resume=True,
    )
    seen = []
    monkeypatch.setattr(training, "train", lambda read, *_, **__: seen.append(read) or {})
    assert main(["train", *request.to_arguments(), "--no-db"]) == 0
    assert seen == [request]
