"""What a user is told when the memory runs out or a GPU fails: the device, and the longest text that would fit."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import DeviceError, TextError, first_line
from focus_runtime.measure.timing import MODES, peak_bytes, reset_peak_memory, timed_pass
from focus_runtime.models.device_map import device_names

PROBE_SHARE = 16  # of the text, read to see what a token takes
PROBE_TOKENS = 64  # at least; fewer say little
USABLE = 0.8  # of the free memory: what a token takes varies with the length


def is_out_of_memory(error: BaseException) -> bool:
    """True for what torch and Python raise where memory cannot be had; torch has a type for GPUs alone."""
    words = ("not enough memory", "can't allocate memory", "out of memory")
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    )


def is_lost_gpu(error: BaseException) -> bool:
    """True where the driver reports a failure after which this process cannot use the GPU again."""
    return isinstance(error, RuntimeError) and ("CUDA error" in str(error) or "device-side assert" in str(error))


def lost_gpu(error: Exception) -> DeviceError:
    """The error for `is_lost_gpu`."""
    return DeviceError(f"the GPU failed: {first_line(error)}", fix="start the program again, or choose the device cpu")


def too_long(focus: FocusModel, ids: Tensor) -> TextError:
    """The error for a text that did not fit; call it when nothing of the failed pass is referenced any more.

    Args:
        focus: the composed model.
        ids: (1, T) of the text.
    """
    length = ids.shape[1]
    fitting = longest_that_fits(focus, ids)
    problem = f"{length:,} tokens need more memory than there is on {device_names(focus.model)}"
    if fitting is None:
        return TextError(problem, fix="set a smaller longest text (--max-tokens), or close other programs")
    return TextError(
        problem,
        expected=f"about {fitting:,} tokens or fewer",
        fix=f"set the longest text to {fitting} (--max-tokens {fitting})",
    )


def longest_that_fits(focus: FocusModel, ids: Tensor) -> int | None:
    """Tokens of the text for which the free memory should suffice; None where the system does not say.

    What a token takes is measured on the beginning of the text. Memory grows in proportion to the tokens: no backend
    that `auto` chooses for long texts holds all pairs.

    Args:
        focus: the composed model.
        ids: (1, T) of the text.
    """
    length = ids.shape[1]
    probe = ids[:, : max(PROBE_TOKENS, length // PROBE_SHARE)]
    if ids.device.type == "cuda":
        torch.cuda.empty_cache()
    free = free_bytes(ids.device)
    if free is None or probe.shape[1] >= length or not reset_peak_memory(ids.device):
        return None
    before = peak_bytes(ids.device)
    try:
        with torch.no_grad():
            for mode in MODES:
                timed_pass(focus, probe, mode)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            return None
        raise
    by_token = max(1, peak_bytes(ids.device) - before) / probe.shape[1]
    fitting = int(min(USABLE * free / by_token, length - 1))
    return max(1, fitting // 100 * 100 if fitting >= 1000 else fitting)


def free_bytes(device: torch.device) -> int | None:
    """Memory that may still be taken on a device; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable")))
    except (OSError, StopIteration, ValueError):
        return None
