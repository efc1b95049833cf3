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
        loss="both",
        distil_weight=0.5,
        val_every=20,
    )
    seen = []
    monkeypatch.setattr(training, "train", lambda read, *_, **__: seen.append(read) or {})
    assert main(["train", *request.to_arguments(), "--no-db"]) == 0
    assert seen == [request]
    domains = TrainRequest(text=("a=x y:2", "b=z"), out="x.safetensors", val=("a=v", "b=w"), patience=3, hard_steps=2)
    assert main(["train", *domains.to_arguments(), "--no-db"]) == 0
    repeated = ["--text", "a=x y:2", "--text", "b=z", "--val", "a=v", "--val", "b=w", "--out", "x.safetensors"]
    assert main(["train", *repeated, "--patience", "3", "--hard-steps", "2", "--no-db"]) == 0
    assert seen[1:] == [domains, domains]
