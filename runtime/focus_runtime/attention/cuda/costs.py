"""How the backends compare on a GPU: measured once, in some seconds, and kept by GPU, torch version and precision.

A backend's time for a text is taken to be a fixed part, for its launches, a part for each row (a token of a head, once
for each of its groups), for sorting, gathering and merging, and one for each pair of the attention it computes.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from focus_runtime.attention.costs import FROM_TOKENS, keep_costs, read_costs
from focus_runtime.attention.cuda.decomposed import decomposition_fits, gpu_decomposition, grouped_fits
from focus_runtime.attention.flash import has_backward
from focus_runtime.attention.masked import masked_attention
from focus_runtime.attention.reference import Scoring
from focus_runtime.errors import first_line
from focus_runtime.mask.rule import Extent, PairRule

HEADS, HEAD_SIZE, GROUPS, LENGTHS = 8, 64, 8, (1024, 4096, 16384)
RULE, SCORING = PairRule(128), Scoring(HEAD_SIZE**-0.5)
REPEATS = 5
VERSION = 2  # of what is measured; another one is measured again
_LOCK = threading.Lock()
_known: dict[tuple[torch.device, torch.dtype], GpuCosts | None] = {}


class Work(NamedTuple):
    """What a backend has to do for a call.

    Attributes:
        pairs: pairs of all heads, in heads of `HEAD_SIZE`.
    """

    rows: float
    pairs: float


@dataclass(frozen=True, slots=True)
class GpuCosts:
    """Seconds by backend: fixed, a row, a pair.

    Attributes:
        seconds: name of the backend -> the three.
    """

    seconds: dict[str, list[float]]

    def of(self, backend: str, work: Work) -> float:
        """Seconds of a call."""
        fixed, row, pair = self.seconds[backend]
        return fixed + row * work.rows + pair * work.pairs

    def ranked(self, works: dict[str, Work]) -> list[str]:
        """Names of backends, the one that takes least first."""
        return sorted(works, key=lambda name: self.of(name, works[name]))


def decomposed_share(extent: Extent) -> float:
    """Operations of the decomposition over full attention's, long inputs, balanced groups (METHOD section 4)."""
    groups, top_k = extent.num_groups, extent.top_k
    share = top_k * top_k / groups
    return share + 2 / (groups * (groups - 1)) if top_k == 2 and groups > 1 else share


def work_of(backend: str, shape: tuple[int, ...], extent: Extent, window: int) -> Work:
    """What a backend does for queries over as many keys.

    Args:
        backend: "masked", "flex" or "decomposed".
    """
    batch, heads, length, size = shape
    every = length * length / 2
    if backend == "masked":
        rows, pairs = 1, every
    else:
        near = length * min(window + 64, length)
        rows, pairs = extent.top_k if backend == "decomposed" else 1, decomposed_share(extent) * every + near
    return Work(batch * heads * length * rows, batch * heads * pairs * size / HEAD_SIZE)


def gpu_costs(device: torch.device, dtype: torch.dtype) -> GpuCosts | None:
    """The costs of a GPU; measured where neither memory nor the user's cache has them.

    None where they cannot be had: while a CUDA graph is captured, or where measuring fails, which is warned of once.
    """
    key = (device, dtype)
    with _LOCK:  # two threads would disturb each other's clock
        if key not in _known:
            name = _name(device, dtype)
            costs = read_costs(name, GpuCosts)
            if costs is None:
                if torch.cuda.is_current_stream_capturing():
                    return None
                costs = _measured(device, dtype)
                if costs is not None:
                    keep_costs(name, asdict(costs))
            _known[key] = costs
        return _known[key]


def _measured(device: torch.device, dtype: torch.dtype) -> GpuCosts | None:
    try:
        return measure(device, dtype)
    except Exception as error:  # compilers and packages raise exceptions of any type
        message = f"backends are chosen by estimates, for they cannot be timed on this GPU: {first_line(error)}"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
        return None


def measure(device: torch.device, dtype: torch.dtype) -> GpuCosts:
    """Time the backends on random tensors of a few lengths."""
    extent = Extent(GROUPS, 1, True)
    samples: dict[str, list[tuple[Work, float]]] = {}
    with torch.no_grad():
        for length in LENGTHS:
            shape = (1, HEADS, length, HEAD_SIZE)
            for name, way in _ways(shape, device, dtype, extent).items():
                seconds = _timed(way, device)
                samples.setdefault(name, []).append((work_of(name, shape, extent, RULE.window), seconds))
    return GpuCosts({name: fitted(measured) for name, measured in samples.items()})


def _ways(
    shape: tuple[int, int, int, int], device: torch.device, dtype: torch.dtype, extent: Extent
) -> dict[str, Callable[[], Any]]:
    from focus_runtime.attention.flex import flex_focus_attention, works  # loads torch's compiler

    length = shape[2]
    tensors: list[Tensor] = [torch.randn(shape, device=device).to(dtype) for _ in range(3)]
    members = torch.bitwise_left_shift(1, torch.randperm(length, device=device) % GROUPS)[None]
    inputs = (tensors[0], tensors[1], tensors[2], members, RULE)
    ways: dict[str, Callable[[], Any]] = {"masked": lambda: masked_attention(*inputs, SCORING)}
    if decomposition_fits(tensors[0], tensors[1], extent, window=RULE.window, scoring=SCORING):
        ways["decomposed"] = lambda: gpu_decomposition(*inputs, SCORING, extent=extent)
    if dtype != torch.float64 and works(device, dtype, shape[3]):
        ways["flex"] = lambda: flex_focus_attention(*inputs, SCORING, return_lse=False, extent=extent)
    return ways


def _timed(way: Callable[[], Any], device: torch.device) -> float:
    """Median seconds from the call to the end of its work on the device; the first call warms up, or compiles."""
    seconds = []
    for _ in range(REPEATS + 1):
        _wait(device)
        start = time.perf_counter()
        way()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fitted(samples: list[tuple[Work, float]]) -> list[float]:
    """Fixed part, part of a row and part of a pair, none below 0, with the least squared relative error."""
    measured = torch.tensor([seconds for _, seconds in samples], dtype=torch.float64)
    terms = torch.tensor([[1.0, work.rows, work.pairs] for work, _ in samples], dtype=torch.float64)
    terms = terms / measured[:, None]
    scale = terms.amax(dim=0)
    best: tuple[float, list[float]] = (float("inf"), [0.0, 0.0, 0.0])
    for size in range(1, min(3, len(samples)) + 1):
        for chosen in itertools.combinations(range(3), size):
            columns = (terms / scale)[:, chosen]
            found = torch.linalg.lstsq(columns, torch.ones(len(samples), dtype=torch.float64)).solution
            error = float(((columns @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < best[0] - 1e-12:
                values = [0.0, 0.0, 0.0]
                for place, value in zip(chosen, found.tolist(), strict=True):
                    values[place] = value / float(scale[place])
                best = (error, values)
    return best[1]


def _name(device: torch.device, dtype: torch.dtype) -> str:
    properties = torch.cuda.get_device_properties(device)
    machine = f"{properties.name}-{properties.major}.{properties.minor}-torch{torch.__version__}"
    readable = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in machine)
    return f"gpu-v{VERSION}-{readable}-{str(dtype).removeprefix('torch.')}"


COMPILE_FROM = 2048  # tokens; below, compiling flex takes more time than it saves
DECOMPOSED_FROM = {1: 8192, 2: 16384}  # tokens by k
WORTH = 0.7  # share of full attention's operations up to which the decomposition is taken
SMALLEST_FLEX_HEAD = 16  # Triton's least matrix side


def choose_on_cuda(
    query: Tensor,
    key: Tensor,
    extent: Extent,
    *,
    window: int,
    key_padding: Tensor | None,
    softcap: float | None,
    gradients: bool,
) -> str:
    """Name the backend ("decomposed", "flex" or "masked") for Focus that is not full attention.

    Args:
        gradients: True when a backward pass will follow: flex has one that waits for nothing.
    """
    length, whole = key.shape[2], query.shape[2] == key.shape[2] and key_padding is None and not gradients
    scoring = Scoring(1.0, softcap)
    if whole and grouped_fits(query, key, key, window, scoring):
        return "decomposed"  # one kernel for each of its parts: the fastest at every length, measured on an H200
    if extent.top_k == 0:  # heads that see their window and the first tokens alone: what was measured is of groups
        skips = (
            query.shape[2] == length >= COMPILE_FROM and key_padding is None and _flex_fits(query, gradients=gradients)
        )
        return "flex" if skips else "masked"
    plain = key_padding is None and softcap is None
    fits = whole and decomposition_fits(query, key, extent, window=window, scoring=scoring)
    if query.shape[2] == length >= FROM_TOKENS and not gradients:
        costs = gpu_costs(query.device, query.dtype)
        if costs is not None:
            works = {name: work_of(name, tuple(query.shape), extent, window) for name in costs.seconds}
            can_run = {"masked": lambda: True, "decomposed": lambda: fits, "flex": lambda: _flex_fits(query)}
            return next(name for name in costs.ranked(works) if can_run[name]())  # flex is tried where it would win
    if fits and length >= DECOMPOSED_FROM.get(extent.top_k, length + 1) and decomposed_share(extent) <= WORTH:
        return "decomposed"
    if length < COMPILE_FROM or query.shape[2] == 1:
        return "masked"
    if _flex_fits(query, gradients=gradients):
        return "flex"
    linear = gradients and plain and query.shape[2] == length and extent.top_k <= 2
    return "decomposed" if linear and has_backward(query) else "masked"  # the memory of masked grows with T^2


def _flex_fits(query: Tensor, *, gradients: bool = False) -> bool:
    if query.dtype == torch.float64 or query.shape[-1] < SMALLEST_FLEX_HEAD:
        return False
    from focus_runtime.attention.flex import works  # loads torch's compiler, which takes a second

    return works(query.device, query.dtype, query.shape[-1], gradients=gradients)
