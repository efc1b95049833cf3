"""One attention layer with random inputs, and how its calls are timed on a GPU: in turn, in rounds, as CUDA graphs."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from focus_runtime.attention.reference import Scoring
from focus_runtime.config import FocusConfig
from focus_runtime.routing.router import CentroidRouter

SETTINGS = ((4, 1), (8, 1), (4, 2), (8, 2))  # K and k
MOST_ROUNDS, FEWEST_ROUNDS = 30, 2
Work = Callable[[], Any]


class Shape(NamedTuple):
    """Heads of a layer: query heads, key heads, head size."""

    heads: int
    kv_heads: int
    size: int

    @property
    def name(self) -> str:
        """For tables."""
        if self.heads == self.kv_heads:
            return f"{self.heads} heads of {self.size}"
        return f"{self.heads} query and {self.kv_heads} key heads of {self.size}"


SHAPES = (Shape(12, 12, 64), Shape(12, 12, 128), Shape(32, 8, 128))


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things run: device, seed and the second by which to stop."""

    device: torch.device
    seed: int
    deadline: float
    dtype: torch.dtype = torch.bfloat16

    @property
    def on_gpu(self) -> bool:
        """False in a smoke run."""
        return self.device.type == "cuda"

    @property
    def seconds_left(self) -> float:
        """Until the deadline."""
        return self.deadline - time.perf_counter()

    def synchronise(self) -> None:
        """Wait for the GPU."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def milliseconds(self, work: Work, inside: Callable[[], AbstractContextManager[Any]] = nullcontext) -> float:
        """Time of one call on the device; entering `inside` is not counted."""
        with inside():
            return self._milliseconds(work)

    def _milliseconds(self, work: Work) -> float:
        if not self.on_gpu:
            start = time.perf_counter()
            work()
            return (time.perf_counter() - start) * 1000
        start_event, stop_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start_event.record()
        work()
        stop_event.record()
        stop_event.synchronize()
        return start_event.elapsed_time(stop_event)


@dataclass(frozen=True, slots=True)
class Layer:
    """Inputs of one layer.

    Attributes:
        query, key, value: (1, heads, T, D), laid out (1, T, heads, D) as models hand them over.
        hidden: (1, T, E), what is routed.
        routers: by K and k.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    hidden: Tensor
    routers: dict[tuple[int, int], CentroidRouter]

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value."""
        return self.query, self.key, self.value

    @property
    def scoring(self) -> Scoring:
        """Scores over the root of the head size."""
        return Scoring(self.query.shape[-1] ** -0.5)

    def membership(self, groups: int, top_k: int) -> Tensor:
        """(1, T), as the router decides it."""
        return self.routers[groups, top_k].own_assignment(self.hidden).membership


def random_layer(bench: Bench, shape: Shape, length: int) -> Layer:
    """Unit-normal tensors, and routers whose groups are alike: orthogonal directions of normal hidden states."""
    generator = torch.Generator(bench.device).manual_seed(bench.seed + length)
    width = shape.heads * shape.size

    def draw(*sizes: int) -> Tensor:
        return torch.randn(1, length, *sizes, generator=generator, device=bench.device, dtype=bench.dtype)

    q, k, v = (draw(heads, shape.size).transpose(1, 2) for heads in (shape.heads, shape.kv_heads, shape.kv_heads))
    routers = {}
    for groups, top_k in SETTINGS:
        router = CentroidRouter(width, FocusConfig(num_groups=groups, top_k=top_k, routing_dim=groups))
        with torch.no_grad():
            torch.nn.init.orthogonal_(router.projection, generator=torch.Generator().manual_seed(bench.seed))
            router.centroids.copy_(torch.eye(groups))
        routers[groups, top_k] = router.to(bench.device)
    return Layer(q, k, v, draw(width), routers)


def spread(values: list[float]) -> dict[str, float]:
    """Median, extremes and count."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "rounds": len(values)}


BACKENDS = {"torch flash": SDPBackend.FLASH_ATTENTION, "torch cudnn": SDPBackend.CUDNN_ATTENTION}


def chosen(name: str) -> AbstractContextManager[Any]:
    """Torch's attention by the kernel of this name alone."""
    return sdpa_kernel(BACKENDS[name]) if name in BACKENDS else nullcontext()


def interleaved(bench: Bench, turns: dict[str, Work], seconds: float, *, warm_up: bool) -> dict[str, dict[str, float]]:
    """Rounds until `seconds` are used up, two at least, after one to warm up; with the memory each call took."""
    times: dict[str, list[float]] = defaultdict(list)
    memory: dict[str, dict[str, float]] = defaultdict(dict)
    start = time.perf_counter()
    for round_number in range(-1 if warm_up else 0, MOST_ROUNDS):
        if round_number == 0:
            start = time.perf_counter()  # kernels are compiled in the round that warms up
        for name, work in turns.items():
            before = memory_now(bench)
            elapsed = bench.milliseconds(work, partial(chosen, name))
            if round_number >= 0:
                times[name].append(elapsed)
            if bench.on_gpu:
                memory[name] = {"peak_bytes": torch.cuda.max_memory_allocated() - before}
        if round_number + 1 >= FEWEST_ROUNDS and time.perf_counter() - start > seconds:
            break
    return {name: spread(values) | memory[name] for name, values in times.items()}


def memory_now(bench: Bench) -> int:
    """Bytes in use; peaks count from here."""
    if not bench.on_gpu:
        return 0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def captured(name: str, work: Work) -> Work:
    """The same work as one CUDA graph, warmed up on a side stream first, as capture asks."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), chosen(name):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with chosen(name), torch.cuda.graph(graph):
        work()
    return graph.replay
