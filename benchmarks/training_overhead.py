"""One step of centroid training and the frozen model's own forward and backward pass, timed in one run.

They take turns, so that a drift of the machine's speed hits all. A step is forward, backward, clipping, AdamW and the
running potentials of `train_centroids`. The model's own pass has the same loss and its own attention; its weights are
frozen, but its embeddings require a gradient, so that one flows through every layer, as in training centroids. With
--weights also the model as it is loaded, whose weights get gradients too. Both processor and wall seconds are given:
processor seconds stay true where other programs share a core; the overheads are ratios of processor seconds.

    python benchmarks/training_overhead.py --threads 1 --out benchmarks/results/training_overhead.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import SoftGate
from focus_runtime.config import FocusConfig
from focus_runtime.measure.loss import dominance, final_hidden, token_nll
from focus_runtime.measure.timing import Spread, machine
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroids import random_centroids

DETAILED = 1024  # tokens at which all settings are measured; elsewhere the first one alone
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is trained, and how."""

    num_groups: int
    window: int
    gate: str = "log"
    hard: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"K={self.num_groups} w={self.window} {self.gate}{' hard' if self.hard else ''}"


SETTINGS = (
    Setting(8, 128),
    Setting(4, 64),
    Setting(8, 128, "log", True),
    Setting(8, 128, "paper"),
    Setting(4, 128),
    Setting(8, 64),
)


@dataclass(slots=True)
class Clock:
    """Wall and processor seconds of one stretch of work."""

    wall: float = 0.0
    processor: float = 0.0

    def of(self, work: Callable[[], Any]) -> None:
        """Run something and remember how long it took."""
        wall, processor = time.perf_counter(), time.process_time()
        work()
        self.wall, self.processor = time.perf_counter() - wall, time.process_time() - processor


def loss_of(model: Any, ids: Tensor) -> Tensor:
    """The training loss."""
    return token_nll(model, final_hidden(model, ids), ids).mean()


def own_pass(model: Any, ids: Tensor, *, weights: bool) -> Clock:
    """Forward and backward of the model without Focus, down to the embeddings or to all weights."""
    model.requires_grad_(weights)
    embeddings = model.get_input_embeddings()
    hook = embeddings.register_forward_hook(lambda _module, _args, out: out if weights else out.requires_grad_())
    clock = Clock()
    try:
        clock.of(lambda: loss_of(model, ids).backward())
    finally:
        hook.remove()
        model.zero_grad(set_to_none=True)
        model.requires_grad_(False)
    return clock


class Training:
    """Centroids of one setting with their optimiser."""

    def __init__(self, model: Any, setting: Setting) -> None:
        self.model, self.setting = model, setting
        config = FocusConfig(num_groups=setting.num_groups, window=setting.window, gate=setting.gate, top_k=1)
        self.centroids = random_centroids(model, config, seed=0)
        routers = self.centroids.routers.values()
        self.parameters = [p.requires_grad_(True) for router in routers for p in router.parameters()]
        self.optimiser = torch.optim.AdamW(self.parameters, lr=3e-3, weight_decay=0.0)

    def step(self, ids: Tensor) -> Clock:
        """One step, as `train_centroids` does it; composing is not part of it."""
        focus, clock = compose(self.model, self.centroids, assignment="sinkhorn"), Clock()

        def work() -> None:
            with focus.entered(SoftGate(self.setting.gate, hard=self.setting.hard)):
                loss = loss_of(self.model, ids)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.optimiser.step()
            for index, assignment in focus.assignments().items():
                self.centroids.routers[index].potential.lerp_(assignment.potential.detach().mean(dim=0), 0.05)
                dominance(assignment.probabilities)

        try:
            clock.of(work)
        finally:
            focus.detach()
        return clock


def overhead(model: Any, length: int, repeats: int, count: int, weights: bool) -> dict[str, Any]:
    """All works at one length, in turn, after one round that warms up."""
    ids = torch.randint(model.config.vocab_size, (1, length), generator=torch.Generator().manual_seed(length))
    settings = SETTINGS[:count] if length == DETAILED else SETTINGS[:1]
    works: dict[str, Callable[[], Clock]] = {
        "own": lambda: own_pass(model, ids, weights=False),
        **{setting.name: partial(Training(model, setting).step, ids) for setting in settings},
    }
    if weights:
        works["own, with gradients of all weights"] = lambda: own_pass(model, ids, weights=True)
    clocks: dict[str, list[Clock]] = {name: [] for name in works}
    for repeat in range(repeats + 1):
        for name, work in works.items():
            clock = work()
            if repeat:
                clocks[name].append(clock)
    own = [clock.processor for clock in clocks["own"]]
    rows = []
    for name, measured in clocks.items():
        seconds = [clock.processor for clock in measured]
        each = [x / y - 1 for x, y in zip(seconds, own, strict=True)]
        overhead = statistics.median(seconds) / statistics.median(own) - 1
        rows.append(
            {
                "what": name,
                "processor_ms": asdict(Spread.of([1000 * x for x in seconds])),
                "wall_ms": asdict(Spread.of([1000 * clock.wall for clock in measured])),
                "overhead": overhead,
                "overhead_of_each_round": each,
            }
        )
        print(
            f"  {name:<36} {statistics.median(seconds):7.2f} s  overhead {100 * overhead:6.1f} %"
            f"  ({100 * min(each):.1f} to {100 * max(each):.1f})",
            flush=True,
        )
    return {"tokens": length, "dtype": str(model.dtype).removeprefix("torch."), "rows": rows}


def main() -> None:
    """Run everything and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--lengths", default="512,1024,2048")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=(*DTYPES, "both"), default="both")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="how many of the settings")
    parser.add_argument("--weights", action="store_true", help="also the own pass with gradients of all weights")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, _ = load_model(arguments.model)
    lengths = [int(part) for part in arguments.lengths.split(",")]
    results = []
    for dtype in DTYPES if arguments.dtype == "both" else (arguments.dtype,):
        model.to(getattr(torch, dtype)).requires_grad_(False)
        for length in lengths:
            print(f"{dtype}, {length} tokens", flush=True)
            results.append(overhead(model, length, arguments.repeats, arguments.settings, arguments.weights))
    result: dict[str, Any] = {
        "what": "one step of centroid training, batch 1, beside the frozen model's own forward and backward pass",
        "model": arguments.model,
        "own_attention": model.config._attn_implementation,
        "num_sinks": FocusConfig().num_sinks,
        "threads": arguments.threads,
        "machine": machine(),
        "results": results,
    }
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
