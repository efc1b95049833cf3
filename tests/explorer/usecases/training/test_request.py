"""The options of a training on their way to another process."""

from __future__ import annotations

import pytest

from focus_explorer.cli.main import main
from focus_explorer.errors import InputError
from focus_explorer.usecases.training.request import TrainRequest, plan_training

pytestmark = pytest.mark.slow  # with the other tests of training


def test_options_survive_the_way_to_another_process(monkeypatch):
    import focus_explorer.usecases.training.train as training

    request = TrainRequest(
        text=("a b.txt",),
        out="x y.safetensors",
        val=("v.txt",),
        log_to=("tensorboard:my runs", "wandb"),
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


def test_a_recipe_decides_what_is_not_given(monkeypatch):
    import focus_explorer.usecases.training.train as training

    seen = []
    monkeypatch.setattr(training, "train", lambda read, *_, **__: seen.append(read) or {})
    words = ["train", "--text", "t", "--out", "x.safetensors", "--no-db"]
    assert main([*words, "--recipe", "paper"]) == 0
    assert main([*words, "--recipe", "paper", "--gate", "log", "--sinks", "2", "--groups", "4"]) == 0
    assert main([*words]) == 0
    paper, changed, ours = seen
    published = plan_training(paper).config
    settings = ("num_groups", "window", "num_sinks", "gate", "assignment", "sinkhorn_iterations", "temperature")
    assert [getattr(published, name) for name in settings] == [8, 128, 0, "paper", "sinkhorn", 10, 0.1]
    assert (changed.gate, changed.sinks, changed.groups, changed.iterations) == ("log", 2, 4, 10)
    assert [getattr(plan_training(ours).config, name) for name in settings] == [4, 128, 4, "log", "causal", 20, 0.1]
    for request in tuple(seen):  # the page's own process gets the same
        assert main([*["train"], *request.to_arguments(), "--no-db"]) == 0
    assert seen[3:] == seen[:3]
    assert main([*words, "--recipe", "theirs"]) == 2


def test_the_steepness_of_equation_2_and_its_schedule_reach_the_training():
    made = TrainRequest(text=("t",), out="x.safetensors", gate="paper", steepness=16.0, steepness_start=1.0, steps=5)
    settings = plan_training(made).settings
    assert [settings.steepness_at(step) for step in range(5)] == [1.0, 4.75, 8.5, 12.25, 16.0]
    with pytest.raises(InputError, match="--steepness-start goes with the paper gate only"):
        plan_training(TrainRequest(text=("t",), out="x.safetensors", steepness_start=1.0))
    with pytest.raises(InputError, match="steepness is -1"):
        plan_training(TrainRequest(text=("t",), out="x.safetensors", gate="paper", steepness=-1.0))
