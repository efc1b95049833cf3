"""Interrupted and resumed training compared with an uninterrupted one."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from focus_runtime.errors import TrainingError, TrainingStopped
from tests.helpers import build_model
from tests.runtime.fit.tiny import TEXTS, same, train

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("changes", "stop_after"),
    [({}, 1), ({}, 5), ({"hard": True, "accumulation": 2}, 2), ({"mixed_precision": "bf16"}, 5)],
)
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


def test_a_killed_training_continues_from_its_last_checkpoint(tmp_path):
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


def test_a_checkpoint_without_its_time_leaves_it_out_of_the_record(tmp_path):
    file = tmp_path / "run.ckpt"
    with pytest.raises(TrainingStopped):
        train(checkpoint=file, should_stop=lambda: True)
    saved = torch.load(file, weights_only=True)
    del saved["content"]["seconds"]  # as older versions wrote it
    torch.save(saved, file)
    resumed, _ = train(checkpoint=file, resume=True)
    assert "seconds" not in resumed.training
    assert resumed.training["steps"] == 6


@pytest.mark.slow
def test_a_real_interrupt_signal_keeps_the_last_step(tmp_path):
    file = tmp_path / "run.ckpt"

    def on_step(step):
        if step.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background ignores it
    try:
        with pytest.raises(TrainingStopped, match="stopped after step 3; kept in"):
            train(checkpoint=file, on_step=on_step, checkpoint_every=100)
    finally:
        signal.signal(signal.SIGINT, before)
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
    with pytest.raises(TrainingError, match=r"after step 2: No space left.*continue with --resume"):
        train(checkpoint=file)
    monkeypatch.setattr(torch, "save", original)
    assert saves
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]
    file.unlink()
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(TrainingError, match=r"No space left.*start again; no checkpoint was written yet"):
        train(checkpoint=file)
