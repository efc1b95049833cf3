"""The cost model behind `backend="auto"` on the CPU: what each way of computing the same attention takes.

One unit is the time torch's full causal attention spends on one pair of tokens. The constants are fitted by
benchmarks/fit_costs.py; benchmarks/results/costs.json keeps the measurements and how often the choice was right. How
the kernels of a machine compare is measured there once, in about a second, and kept in the user's cache by processor,
precision and threads: torch's own kernel may be slow where the fused one is fast (fp32 on an AMD EPYC) or several times
faster (bf16 on a processor with matrix tiles).
"""

from __future__ import annotations

import hashlib
import json
import operator
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention.decomposed import decomposed_attention, subsets_of
from focus_runtime.attention.flash import causal_flash
from focus_runtime.attention.fused import (
    ELEMENTS,
    IN_TILES,
    IN_VECTORS,
    FusedCosts,
    fused_attention,
    fused_available,
    matrix_tiles_available,
)
from focus_runtime.attention.masked import masked_attention
from focus_runtime.attention.reference import Scoring
from focus_runtime.errors import InputError
from focus_runtime.files import default_cache_dir, replacing
from focus_runtime.mask.rule import PairRule
from focus_runtime.native import processor_identity

FROM_TOKENS = 512  # a machine is measured for texts from here on: shorter ones take a millisecond a layer whatever runs
# Without a compiler: flash calls of torch. Pairs inside groups, tokens gathered and merged, calls, local pairs.
GROUP_PAIR, GROUP_TOKEN, GROUP_CALL, LOCAL_PAIR = 1.3, 150.0, 630.0, 1.0
SINK_PAIR = 4.0  # not fitted: a few sinks cost little compared with the rest
MASKED_PAIR, MASKED_BLOCK = 1.1, 256
# The fused kernel's time is foretold within a few percent, that of torch's calls by a third too low at worst: they have
# to promise at least this much.
PROMISED_GAIN = 0.85
# Queries of its tile and vector, and those that share a copy of keys, with AVX-512: LANES, VECTORS and SUBTILES there.
TILE, VECTOR, CHUNK = 32, 16, 1024
# What is measured on a machine: short and long texts of some heads, in balanced groups.
HEADS, HEAD_SIZE, SHORT, LONG, GROUPS = 8, 64, 1024, 2048, 8
RULE, SCORING = PairRule(128), Scoring(HEAD_SIZE**-0.5)
REPEATS = 5
VERSION = 2  # of what is measured; another one is measured again
_LOCK = threading.Lock()
_known: dict[tuple[torch.dtype, int], MachineCosts] = {}


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """How this machine differs from the one the constants were fitted on, 1 where it does not.

    Attributes:
        overhead: time of the decomposition besides its pairs, over the model's.
        fused: the fused kernel's time for a pair of its pass by class, over torch's for a pair of full attention.
    """

    masked: float = 1.0
    overhead: float = 1.0
    fused: float = 0.6
    tiles: bool = False

    @property
    def inside(self) -> FusedCosts:
        """Costs in the fused kernel."""
        return IN_TILES if self.tiles else IN_VECTORS


def class_terms(membership: Tensor, rule: PairRule) -> tuple[float, float, float]:
    """Pairs in whole tiles, keys copied and local pairs, as `by_class_is_faster` of fused.cpp counts them."""
    signatures, counts = torch.unique(membership, return_counts=True)
    meets = ((signatures[:, None] & signatures[None, :]) != 0).double() @ counts.double()
    queries = torch.where(counts <= VECTOR, VECTOR, torch.ceil(counts / TILE) * TILE)
    copies = torch.ceil(counts / CHUNK)
    length = membership.shape[0]
    local = length * min(rule.near(length // 2) + rule.num_sinks + TILE, length)
    return (queries * meets / 2).sum().item(), (copies * meets / 2).sum().item(), local


def by_class_cost(membership: Tensor, rule: PairRule, inside: FusedCosts) -> float:
    """Time of the fused kernel's pass by class over one text, in pairs of that pass."""
    pairs, copied, local = class_terms(membership, rule)
    return pairs + inside.copy * copied + inside.local * local


def set_sizes(membership: Tensor) -> list[int]:
    """Tokens of every set of groups the decomposition calls, for one text; an InputError when those are too many."""
    signatures, counts = torch.unique(membership, return_counts=True)
    required = torch.tensor(subsets_of(signatures.tolist()), dtype=torch.int64, device=signatures.device)[:, None]
    return (((signatures & required) == required) * counts).sum(dim=1).tolist()


def decomposed_terms(sizes: list[int], length: int, window: int) -> tuple[float, float, float, float]:
    """Pairs inside sets, tokens in sets, sets and local pairs of one text; `window`: of a query in its middle."""
    reach = min(window + 64, length)  # a local block computes its own queries' keys too
    return sum(size * (size + 1) / 2 for size in sizes), sum(sizes), len(sizes), length * reach


def decomposed_cost(sizes: list[int], length: int, rule: PairRule, machine: MachineCosts = MachineCosts()) -> float:
    """Units for one text by the decomposition."""
    factors = (GROUP_PAIR, machine.overhead * GROUP_TOKEN, machine.overhead * GROUP_CALL, LOCAL_PAIR)
    terms = decomposed_terms(sizes, length, rule.near(length // 2))
    return sum(map(operator.mul, factors, terms)) + SINK_PAIR * length * rule.num_sinks


def masked_term(length: int) -> float:
    """Pairs masked attention computes for one text."""
    return length * (length + MASKED_BLOCK) / 2


def cheapest(membership: Tensor, rule: PairRule, machine: MachineCosts, *, fused: bool) -> str:
    """ "fused", "decomposed" or "masked", by the model above, for a batch of texts."""
    length = membership.shape[1]
    cost = {"masked": machine.masked * MASKED_PAIR * masked_term(length) * membership.shape[0]}
    with suppress(InputError):  # too many sets
        cost["decomposed"] = sum(decomposed_cost(set_sizes(row), length, rule, machine) for row in membership)
    if fused:
        dense = machine.inside.dense * length**2 / 2
        texts = sum(min(by_class_cost(row, rule, machine.inside), dense) for row in membership)
        cost["fused"] = PROMISED_GAIN * machine.fused * texts
    return min(cost, key=cost.__getitem__)


def machine_costs(dtype: torch.dtype) -> MachineCosts:
    """The costs of this process's machine and threads; measured where neither memory nor the user's cache has them."""
    key = (dtype, torch.get_num_threads())
    with _LOCK:  # two threads would disturb each other's clock
        if key not in _known:
            machine = hashlib.sha256(processor_identity() + torch.__version__.encode()).hexdigest()[:16]
            kernel = "fused" if fused_available() else "torch"
            name = f"v{VERSION}-{machine}-{str(dtype).removeprefix('torch.')}-{key[1]}-{kernel}.json"
            path = default_cache_dir() / "costs" / name
            try:
                _known[key] = MachineCosts(**json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError):  # nothing is there yet, or it is damaged
                _known[key] = measure(dtype)
                with suppress(OSError), replacing(path, explain=None) as fresh:  # else the next process measures again
                    fresh.write_text(json.dumps(asdict(_known[key])) + "\n", encoding="utf-8")
        return _known[key]


def measure(dtype: torch.dtype) -> MachineCosts:
    """Time the kernels in turn on random tensors."""
    generator = torch.Generator().manual_seed(0)
    texts: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
    for length in (SHORT, LONG):
        query, key, value = torch.randn(3, 1, length, HEADS, HEAD_SIZE, generator=generator).to(dtype).transpose(2, 3)
        group_T = torch.randperm(length, generator=generator) % GROUPS
        texts[length] = (query, key, value, torch.bitwise_left_shift(1, group_T)[None])
    short, long = texts[SHORT], texts[LONG]
    ways: dict[str, Callable[[], Any]] = {
        "full": lambda: causal_flash(*short[:3], SCORING.scale),
        "masked": lambda: masked_attention(*short, RULE, SCORING),
        "decomposed": lambda: decomposed_attention(*long, RULE, SCORING.scale),
    }
    if dtype in ELEMENTS and fused_available():
        ways["fused"] = lambda: fused_attention(*short, RULE, SCORING, mode="by class")
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
    return fitted(units, short[3][0], long[3][0], tiles=dtype == torch.bfloat16 and matrix_tiles_available())


def fitted(units: dict[str, float], short: torch.Tensor, long: torch.Tensor, *, tiles: bool) -> MachineCosts:
    """The costs that explain times in units: of "masked" and "fused" on the short text, of "decomposed" on the long."""
    sizes = set_sizes(long)
    whole = decomposed_cost(sizes, LONG, RULE)
    pairs = decomposed_cost(sizes, LONG, RULE, MachineCosts(overhead=0.0))
    overhead = max(0.1, (units["decomposed"] - pairs) / (whole - pairs))
    masked = units["masked"] / (MASKED_PAIR * masked_term(SHORT))
    if "fused" not in units:
        return MachineCosts(masked=masked, overhead=overhead)
    fused = units["fused"] / by_class_cost(short, RULE, IN_TILES if tiles else IN_VECTORS)
    return MachineCosts(masked=masked, overhead=overhead, fused=fused, tiles=tiles)
