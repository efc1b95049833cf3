"""What a user is told when the memory runs out or a GPU fails: the device, and the longest text that would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from focus_runtime.errors import InputError, MemoryShortError
from focus_runtime.failures import LONGEST_TEXT, Advice, device_failure, is_lost_gpu, is_out_of_memory, release
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.measure.timing import peak_bytes, reset_peak_memory
from focus_runtime.models.devices import device_names, input_device
from focus_runtime.models.structure import hooked

PROBE_SHARE = 16  # of the text, read to see what a token takes
PROBE_TOKENS = 64  # at least; fewer say little
USABLE = 0.8  # of the free memory: what a token takes varies with the length


@contextmanager
def failures_named(shortage: Callable[[], InputError]) -> Iterator[None]:
    """Turn a lack of memory and a GPU that fails within the block into errors for the user.

    `shortage` makes the error for a lack of memory, when nothing of the failed work is in memory any more.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        failure = device_failure(error)
        if failure is None:
            raise
        if is_out_of_memory(error):
            release(error)
            failure = shortage()
        raise failure from error


@contextmanager
def within_memory(
    model: Any, advice: Advice = LONGEST_TEXT, *, read: Callable[[Tensor], Any] | None = None
) -> Iterator[None]:
    """Let work run a model, and name what it ran on, where and what would fit if the memory does not suffice.

    The length named is that of the model's latest pass over several tokens. `read` reads (B, T) token ids as the work
    does. None: a pass of the model as it then is, with its loss.
    """
    latest: list[Tensor] = []

    @torch.no_grad()
    def with_loss(ids: Tensor) -> None:
        token_nll(model, final_hidden(model, ids), ids)

    again = read or with_loss

    def keep(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and inputs[0].dim() == 2 and inputs[0].shape[1] > 1:  # not a decode step
            latest[:] = [inputs[0].detach()]

    def shortage() -> InputError:
        hook.remove()
        device = device_names(model)
        if not latest:
            problem = f"{advice.work}the model needs more memory than there is on {device}"
            return MemoryShortError(problem, fix=advice.otherwise)
        ids, fitting = latest[0], None
        if advice.fits:
            fitting = longest_that_fits(lambda count: again(ids[:, :count]), ids.shape[1], input_device(model))
        return shortage_of(tokens(*ids.shape), device, fitting, advice)

    hook = model.get_input_embeddings().register_forward_pre_hook(keep)
    with hooked([hook]), failures_named(shortage):
        yield


def shortage_of(what: str, device: str, fitting: int | None, advice: Advice) -> MemoryShortError:
    """The error for work on `what`, a plural, on a device where `fitting` tokens would fit."""
    problem = f"{advice.work}{what} need more memory than there is on {device}"
    if fitting is None:
        return MemoryShortError(problem, fix=advice.otherwise)
    return MemoryShortError(problem, expected=f"about {fitting:,} tokens or fewer", fix=advice.fits.format(fitting))


def tokens(rows: int, length: int) -> str:
    """What was read at a time: `512 tokens`, or `4 sequences of 512 tokens`."""
    return f"{length:,} tokens" if rows == 1 else f"{rows} sequences of {length:,} tokens"


def longest_that_fits(read: Callable[[int], Any], length: int, device: torch.device, *, reserve: int = 0) -> int | None:
    """Tokens of a text of `length`, which did not fit, for which the free memory should suffice; None if unknown.

    `read` does the work on the first n tokens; its memory is measured for a short n. Memory grows in proportion to the
    tokens: no backend that `auto` chooses for long texts holds all pairs. `reserve`: bytes needed for other things.
    """
    probe = max(PROBE_TOKENS, length // PROBE_SHARE)
    if probe >= length:
        return None
    try:
        read(probe)  # what is taken once, such as a GPU's workspaces, belongs to no token
        if device.type == "cuda":
            torch.cuda.empty_cache()
        free = free_bytes(device)
        if free is None or not reset_peak_memory(device):
            return None
        before = peak_bytes(device)
        read(probe)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error) or is_lost_gpu(error):
            return None
        raise
    by_token = max(1, peak_bytes(device) - before) / probe
    fitting = int(min(USABLE * max(0, free - reserve) / by_token, length - 1))
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
