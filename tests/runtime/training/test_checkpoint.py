"""Interrupted, resumed, accumulated, checkpointed and distributed training against one that simply runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch

from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TrainingError, TrainingStopped
from focus_runtime.training.centroids import retained_pairs, train_centroids
from focus_runtime.training.loop import TrainConfig
from tests.helpers import build_model, build_tokenizer

pytestmark = pytest.mark.slow

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


def state(centroids):
    return [v.clone() for _, r in sorted(centroids.routers.items()) for v in r.state_dict().values()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(state(a), state(b), strict=True))


@pytest.mark.parametrize("stop_after", [1, 2, 5])
@pytest.mark.parametrize("changes", [{}, {"hard": True, "accumulation": 2}, {"mixed_precision": "bf16"}])
def test_a_resumed_training_is_the_uninterrupted_one(changes, stop_after, tmp_path):
    whole, losses = train(**changes)
    file = tmp_path / "run.ckpt"
    seen: list[int] = []

    def stop():
        seen.append(1)
        return len(seen) == stop_after

    with pytest.raises(TrainingStopped) as stopped:
        train(checkpoint=file, should_stop=stop, **changes)
    assert (stopped.value.step, stopped.value.path) == (stop_after, file)
    resumed, rest = train(checkpoint=file, resume=True, **changes)
    assert rest == losses[stop_after:]
    assert same(resumed, whole)
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]


def test_a_killed_training_goes_on_from_its_last_checkpoint(tmp_path):
    whole, losses = train()
    file = tmp_path / "run.ckpt"

    def crash(step):
        if step.step == 5:
            raise RuntimeError("the machine went down")

    with pytest.raises(RuntimeError):
        train(checkpoint=file, on_step=crash)
    resumed, rest = train(checkpoint=file, resume=True)
    assert rest == losses[4:]
    assert same(resumed, whole)


def test_ctrl_c_in_a_step_keeps_the_one_before(tmp_path, monkeypatch):
    file, calls = tmp_path / "run.ckpt", []
    original = torch.Tensor.backward

    def interrupted(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "backward", interrupted)
    with pytest.raises(TrainingStopped) as stopped:
        train(checkpoint=file)
    assert stopped.value.step == 3
    monkeypatch.undo()
    whole, losses = train()
    resumed, rest = train(checkpoint=file, resume=True)
    assert rest == losses[3:]
    assert same(resumed, whole)


@pytest.mark.slow
def test_a_real_interrupt_signal_keeps_the_last_step(tmp_path):
    file = tmp_path / "run.ckpt"
    program = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from tests.runtime.training.test_checkpoint import train
        from focus_runtime.errors import TrainingStopped
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background ignores it
        def on_step(step):
            if step.step == 3:
                os.kill(os.getpid(), signal.SIGINT)
        try:
            train(checkpoint=Path({str(file)!r}), on_step=on_step, checkpoint_every=100)
        except TrainingStopped as stopped:
            print(stopped)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=_environment())
    assert "stopped after step 3; kept in" in done.stdout, done.stderr
    assert train(checkpoint=file, resume=True)[1] == train()[1][3:]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rate": 2e-2}, "settings was"),
        ({"focus": {"window": 5}}, "config was"),
        ({"model": build_model(seed=1)}, "model was"),
        ({"texts": TEXTS[:1]}, "texts was"),
        ({"steps": 9}, "settings was"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(changes, named, tmp_path):
    file = tmp_path / "run.ckpt"
    train(checkpoint=file)
    before = file.read_bytes()
    with pytest.raises(TrainingError, match=f"another training: {named}.*now it is"):
        train(checkpoint=file, resume=True, **changes)
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"nothing torch wrote", None])
def test_no_or_a_damaged_checkpoint_is_said(content, tmp_path):
    file = tmp_path / "run.ckpt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TrainingError, match="there is no checkpoint" if content is None else "damaged"):
        train(checkpoint=file, resume=True)


def test_a_full_disk_keeps_the_older_checkpoint(tmp_path, monkeypatch):
    file = tmp_path / "run.ckpt"
    train(checkpoint=file, steps=2, warmup=1)
    before, saves = file.read_bytes(), []
    original = torch.save

    def full(content, stream, *args):
        saves.append(1)
        stream.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(TrainingError, match=r"after step 2: No space left.*go on with --resume"):
        train(checkpoint=file)
    monkeypatch.setattr(torch, "save", original)
    assert saves
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    import focus_runtime.training.centroids as module

    file, calls = tmp_path / "run.ckpt", []
    original = module.token_nll

    def breaking(*args):
        calls.append(1)
        return original(*args) * (float("nan") if len(calls) == 4 else 1.0)

    monkeypatch.setattr(module, "token_nll", breaking)
    with pytest.raises(TrainingError, match=r"became nan at step 4; the last good checkpoint.*learning rate below"):
        train(checkpoint=file)
    monkeypatch.undo()
    assert train(checkpoint=file, resume=True)[1] == train()[1][2:]


def test_a_gradient_that_is_no_number_is_noticed_before_it_reaches_the_weights(tmp_path, monkeypatch):
    """A finite loss may have a gradient that is not: 0 * inf in the backward pass."""
    import focus_runtime.training.centroids as module

    file, calls = tmp_path / "run.ckpt", []
    original = module.token_nll

    class Breaking(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            return value.clone()

        @staticmethod
        def backward(context, grad):
            return grad * float("inf")

    def breaking(*args):
        calls.append(1)
        return Breaking.apply(original(*args)) if len(calls) == 4 else original(*args)

    monkeypatch.setattr(module, "token_nll", breaking)
    with pytest.raises(
        TrainingError, match=r"the gradient's norm became (nan|inf) at step 4; the last good checkpoint"
    ):
        train(batch=1, accumulation=1, checkpoint=file)
    monkeypatch.undo()
    whole = train(batch=1, accumulation=1)
    assert train(batch=1, accumulation=1, checkpoint=file, resume=True)[1] == whole[1][2:]


def test_two_passes_of_one_sequence_are_one_pass_of_two(fresh_seed):
    seed = fresh_seed % 1000
    a, first = train(batch=2, seed=seed)
    b, second = train(batch=1, accumulation=2, seed=seed)
    assert first == pytest.approx(second, rel=1e-4)
    for x, y in zip(state(a), state(b), strict=True):
        torch.testing.assert_close(x, y, rtol=2e-2, atol=2e-2)


def test_gradient_checkpointing_changes_no_loss():
    model = build_model(attention_dropout=0.0)
    plain, losses = train(model)
    again, found = train(model, gradient_checkpointing=True)
    assert found == pytest.approx(losses, rel=1e-5)
    assert not any(getattr(m, "gradient_checkpointing", False) for m in model.modules())
    assert not any(m.training for m in model.modules())
    torch.testing.assert_close(state(plain)[0], state(again)[0], rtol=1e-3, atol=1e-4)


def test_gradient_checkpointing_computes_layers_again():
    model, calls = build_model(), []
    model.model.layers[1].self_attn.q_proj.register_forward_hook(lambda *_: calls.append(1))
    train(model, steps=1, calibration_sequences=1)
    plain = len(calls)
    train(model, steps=1, calibration_sequences=1, gradient_checkpointing=True)
    assert len(calls) - plain == plain + 1


def test_unknown_precision_is_refused():
    with pytest.raises(ConfigError, match=r"mixed_precision is 'fp8'; expected no or bf16 or fp16"):
        TrainConfig(mixed_precision="fp8")


def test_retained_pairs_of_a_step_are_those_of_the_mask(fresh_seed):
    from focus_runtime.mask.blocks import count_pairs

    membership = 1 << torch.randint(0, 4, (300,))
    exact = count_pairs(membership.numpy(), 10, 2).retained_pairs
    assert retained_pairs(membership, 10, 2) == pytest.approx(exact, abs=1e-12)
    longer = 1 << torch.randint(0, 4, (3000,))
    assert retained_pairs(longer, 10, 2) == pytest.approx(count_pairs(longer.numpy(), 10, 2).retained_pairs, abs=5e-3)


@pytest.mark.slow
def test_two_processes_train_what_one_does_with_twice_the_batch(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import json
        from accelerate import PartialState
        state = PartialState(cpu=True)
        from tests.runtime.training.test_checkpoint import train
        losses = train(batch=1, steps=3)[1]
        if state.is_main_process:
            print("LOSSES", json.dumps(losses), state.num_processes)
        state.destroy_process_group()
        """)
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "--master_port",
        str(29500 + os.getpid() % 500),
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    found = [line.split(" ", 1)[1] for line in done.stdout.splitlines() if line.startswith("LOSSES")]
    assert found, done.stderr
    assert found[0].endswith(" 2")
    assert json.loads(found[0].rsplit(" ", 1)[0]) == pytest.approx(train(batch=2, steps=3)[1], rel=1e-4)


def _environment():
    here = os.getcwd()
    return {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.join(here, "runtime"), here]), "OMP_NUM_THREADS": "1"}
