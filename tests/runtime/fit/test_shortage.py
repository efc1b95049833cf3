"""Settings that are named where a training step does not fit."""

from __future__ import annotations

import pytest

from focus_runtime.fit.loop import training_shortage
from focus_runtime.fit.settings import TrainConfig

ALONE = {"batch": 1, "seq_len": 512, "accumulation": 1, "gradient_checkpointing": False}


def message(room, checkpoint=None, **settings):
    return str(training_shortage(TrainConfig(**{**ALONE, **settings}), "cuda:0", room, checkpoint))


@pytest.mark.parametrize(
    ("room", "settings", "fix"),
    [
        (1100, {"batch": 4}, "set the sequences per pass to 2 (--batch 2; --accumulate 2 keeps the step's size)"),
        (9999, {"batch": 4}, "set the sequences per pass to 3 (--batch 3; --accumulate 2 keeps the step's size)"),
        (600, {"batch": 4, "accumulation": 3}, "set the sequences per pass to 1 (--batch 1; --accumulate 12 keeps "),
        (400, {"batch": 4}, "set the tokens per sequence to 400 (--seq-len 400, --batch 1)"),
        (400, {}, "set the tokens per sequence to 400 (--seq-len 400)"),
        (9, {}, "set fewer tokens per sequence (--seq-len), fewer sequences per pass (--batch)"),
        (None, {}, "set fewer tokens per sequence (--seq-len), fewer sequences per pass (--batch)"),
    ],
)
def test_less_at_a_time_is_advised(room, settings, fix):
    said = message(room, **settings)
    assert fix in said
    assert said.startswith("a training pass over ")
    assert "512 tokens needs more memory than there is on cuda:0; " in said
    assert said.endswith(", or add --gradient-checkpointing")
    assert "checkpointing" not in message(room, **settings, gradient_checkpointing=True)


def test_what_is_kept_is_named(tmp_path):
    file = tmp_path / "t.ckpt"
    assert "--resume" not in message(400, file)
    file.touch()
    assert message(400, file).endswith(f"; {file} keeps the training as it was, for --resume with the same settings")
