"""Failures that are no defect: the memory ran out, or the GPU failed; how they are known and what is advised."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from focus_runtime.errors import DeviceError, InputError, first_line

_MEMORY_WORDS = ("not enough memory", "can't allocate memory", "out of memory")
_GPU_WORDS = ("CUDA error", "device-side assert")


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """What to do when the memory runs out."""

    fits: str = ""  # with `{0}` for the length that fits; empty where a user does not choose the length
    otherwise: str  # where that length is not known
    work: str = ""  # what the tokens were read for; the message begins with it


LONGEST_TEXT = Advice(
    fits="set the longest text to {0} (--max-tokens {0})",
    otherwise="set a smaller longest text (--max-tokens), or close other programs",
)
SEQUENCES = Advice(
    fits="set the tokens of a sequence to {0} (--seq-len {0})",
    otherwise="set a smaller --seq-len, or close other programs",
)


def is_out_of_memory(error: BaseException) -> bool:
    """True for what torch and Python raise where memory cannot be had; torch has a type for GPUs alone."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _MEMORY_WORDS)
    )


def is_lost_gpu(error: BaseException) -> bool:
    """True where the driver reports a failure after which this process cannot use the GPU again."""
    return (
        isinstance(error, RuntimeError)
        and not is_out_of_memory(error)
        and any(words in str(error) for words in _GPU_WORDS)
    )


def device_failure(error: Exception) -> InputError | None:
    """What a user is told of such a failure where nothing is known of the text; None for any other error."""
    if is_lost_gpu(error):
        return DeviceError(
            f"the GPU failed: {first_line(error)}", fix="start the program again, or choose the device cpu"
        )
    if is_out_of_memory(error):
        return DeviceError("the memory ran out", fix="close other programs, or give a shorter text")
    return None


def release(error: BaseException) -> None:
    """Let go of what the functions that failed had in memory; the error holds on to their variables otherwise."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
