"""How this machine's kernels compare: measured once, in about a second, and kept by processor, precision and threads.

Torch's own kernel may be slow where the fused one is fast (fp32 on an AMD EPYC) or several times faster (bf16 on a
processor with matrix tiles), so constants of one machine would choose wrongly on another.
"""

from __future__ import annotations

import hashlib
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from focus_runtime.attention import costs
from focus_runtime.attention.costs import MachineCosts
from focus_runtime.attention.decomposed import decomposed_attention
from focus_runtime.attention.fused import ELEMENTS, fused_attention, fused_available, in_matrix_tiles
from focus_runtime.attention.kept_costs import keep_costs, read_costs
from focus_runtime.attention.kernels.flash import causal_flash
from focus_runtime.attention.masked import masked_attention
from focus_runtime.attention.scoring import Scoring
from focus_runtime.mask.rule import PairRule
from focus_runtime.native.library import processor_identity

HEADS, HEAD_SIZE, SHORT, LONG, GROUPS = 8, 64, 1024, 2048, 8
RULE, SCORING = PairRule(128), Scoring(HEAD_SIZE**-0.5)
REPEATS = 5
VERSION = 2  # of what is measured; another one is measured again
_LOCK = threading.Lock()
_known: dict[tuple[torch.dtype, int], MachineCosts] = {}


def machine_costs(dtype: torch.dtype) -> MachineCosts:
    """The costs of this process's machine and threads; measured where neither memory nor the user's cache has them.

    Args:
        dtype: of query, key and value.
    """
    key = (dtype, torch.get_num_threads())
    with _LOCK:  # two threads would disturb each other's clock
        if key not in _known:
            name = _name(*key)
            costs = read_costs(name, MachineCosts)
            if costs is None:
                costs = measure(dtype)
                keep_costs(name, asdict(costs))
            _known[key] = costs
        return _known[key]


def measure(dtype: torch.dtype) -> MachineCosts:
    """Time the kernels in turn on random tensors.

    Args:
        dtype: of query, key and value.
    """
    generator = torch.Generator().manual_seed(0)

    def tensors(length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = (torch.randn(1, length, HEADS, HEAD_SIZE, generator=generator).to(dtype) for _ in range(3))
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def groups(length: int) -> torch.Tensor:
        return torch.bitwise_left_shift(1, torch.randperm(length, generator=generator) % GROUPS)[None]

    short, long, few, many = tensors(SHORT), tensors(LONG), groups(SHORT), groups(LONG)
    ways: dict[str, Callable[[], Any]] = {
        "full": lambda: causal_flash(*short, SCORING.scale),
        "masked": lambda: masked_attention(*short, few, RULE, SCORING),
        "decomposed": lambda: decomposed_attention(*long, many, RULE, SCORING.scale),
    }
    if dtype in ELEMENTS and fused_available():
        ways["fused"] = lambda: fused_attention(*short, few, RULE, SCORING, mode="by class")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with torch.no_grad():
        for repeat in range(REPEATS + 1):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                if repeat:  # the first warms up
                    seconds[name].append(time.perf_counter() - start)
    unit = statistics.median(seconds["full"]) / (SHORT * (SHORT + 1) / 2)
    units = {name: statistics.median(values) / unit for name, values in seconds.items()}
    return fitted(units, few[0], many[0], tiles=in_matrix_tiles(dtype))


def fitted(units: dict[str, float], short: torch.Tensor, long: torch.Tensor, *, tiles: bool) -> MachineCosts:
    """The costs that explain measured times.

    Args:
        units: time of "masked" on the short text, "decomposed" on the long one and, where it ran, "fused" by class on
            the short one, in units.
        short, long: (T,) memberships of the two texts.
        tiles: whether "fused" ran in matrix tiles.
    """
    sizes = costs.set_sizes(long)
    assert sizes is not None
    whole = costs.decomposed_cost(sizes, LONG, RULE)
    pairs = costs.decomposed_cost(sizes, LONG, RULE, MachineCosts(overhead=0.0))
    overhead = max(0.1, (units["decomposed"] - pairs) / (whole - pairs))
    masked = units["masked"] / costs.masked_cost(SHORT)
    if "fused" not in units:
        return MachineCosts(masked=masked, overhead=overhead)
    inside = MachineCosts(tiles=tiles).inside
    fused = units["fused"] / costs.by_class_cost(short, RULE, inside)
    return MachineCosts(masked=masked, overhead=overhead, fused=fused, tiles=tiles)


def _name(dtype: torch.dtype, threads: int) -> str:
    machine = hashlib.sha256(processor_identity() + torch.__version__.encode()).hexdigest()[:16]
    kernel = "fused" if fused_available() else "torch"
    return f"v{VERSION}-{machine}-{str(dtype).removeprefix('torch.')}-{threads}-{kernel}"
