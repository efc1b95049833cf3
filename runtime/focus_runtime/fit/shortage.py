"""What is said when a training step needs more memory than there is, and the settings that would fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from focus_runtime.errors import MemoryShortError
from focus_runtime.measure.memory import tokens

SHORTEST = 16  # tokens of a sequence, as TrainConfig has it


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """What a training reads at a time.

    Attributes:
        batch, seq_len: sequences of a pass, and tokens of each.
        accumulation: passes of a step.
        gradient_checkpointing: whether layers are computed again in the backward pass.
        device: it runs on.
    """

    batch: int
    seq_len: int
    accumulation: int
    gradient_checkpointing: bool
    device: str


def training_shortage(read: Pass, room: int | None, checkpoint: Path | None) -> MemoryShortError:
    """The error for a pass that did not fit.

    Args:
        read: the pass.
        room: tokens of a pass that would fit; None where that is not known.
        checkpoint: of the training; it is named where it exists.
    """
    what = tokens(read.batch, read.seq_len)
    problem = f"a training pass over {what} needs more memory than there is on {read.device}"
    more = "" if read.gradient_checkpointing else ", or add --gradient-checkpointing"
    if checkpoint is not None and checkpoint.exists():
        more += f"; {checkpoint} keeps the training as it was, for --resume with the same settings"
    if room is None or room < SHORTEST:
        fix = "set fewer tokens per sequence (--seq-len), fewer sequences per pass (--batch)"
        return MemoryShortError(problem, fix=fix + more)
    expected = f"about {room:,} tokens or fewer at a time"
    return MemoryShortError(problem, expected=expected, fix=_smaller(read, room) + more)


def _smaller(read: Pass, room: int) -> str:
    """Settings with at most `room` tokens in a pass: fewer sequences in more passes, else shorter ones."""
    if room < read.seq_len:
        alone = ", --batch 1" if read.batch > 1 else ""
        return f"set the tokens per sequence to {room} (--seq-len {room}{alone})"
    batch = min(read.batch - 1, room // read.seq_len)
    passes = -(-read.batch * read.accumulation // batch)
    return f"set the sequences per pass to {batch} (--batch {batch}; --accumulate {passes} keeps the step's size)"
