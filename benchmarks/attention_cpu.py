"""One attention layer on the CPU: exact k = 1 Focus against full attention with the same flash kernel, in one run.

Full attention and Focus take turns, so that a drift of the machine's speed hits both. The decomposition includes
sorting by group, gathering, both attention parts, the merge and scattering back; routing is not part of it.

    python benchmarks/attention_cpu.py --out benchmarks/results/attention_cpu.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention import focus_attention
from focus_runtime.attention.flash import causal_flash

HEADS, HEAD_SIZE, GROUPS, WINDOW = 12, 64, 8, 128
LENGTHS = (1024, 2048, 4096, 8192, 16384)
ERROR_LENGTH = 2048


def inputs(length: int, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit-normal query, key and value (1, 12, T, 64) and balanced random single-group membership (1, T)."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, HEADS, length, HEAD_SIZE, generator=generator).to(dtype) for _ in range(3))
    group = torch.randperm(length, generator=generator) % GROUPS
    return q, k, v, torch.bitwise_left_shift(torch.ones_like(group), group)[None]


def milliseconds(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def speed(length: int, repeats: int, num_sinks: int) -> dict[str, Any]:
    """Medians and extremes of both, and their ratio."""
    q, k, v, membership = inputs(length, torch.float32, length)

    def full() -> Any:
        return causal_flash(q, k, v, HEAD_SIZE**-0.5)

    def focus() -> Any:
        return focus_attention(q, k, v, membership, window=WINDOW, num_sinks=num_sinks, backend="decomposed")

    full(), focus()
    times = [(milliseconds(full), milliseconds(focus)) for _ in range(repeats)]
    full_ms, focus_ms = ([pair[side] for pair in times] for side in (0, 1))
    return {
        "tokens": length,
        "num_sinks": num_sinks,
        "repeats": repeats,
        "full_ms": {"median": statistics.median(full_ms), "low": min(full_ms), "high": max(full_ms)},
        "focus_ms": {"median": statistics.median(focus_ms), "low": min(focus_ms), "high": max(focus_ms)},
        "full_over_focus": statistics.median(full_ms) / statistics.median(focus_ms),
        "full_over_focus_by_pair": statistics.median(a / b for a, b in times),
    }


def error(num_sinks: int) -> float:
    """Largest absolute difference from the float64 reference at 2,048 tokens."""
    q, k, v, membership = inputs(ERROR_LENGTH, torch.float32, 1)
    setting: dict[str, Any] = {"window": WINDOW, "num_sinks": num_sinks}
    exact = focus_attention(q.double(), k.double(), v.double(), membership, backend="reference", **setting)
    found = focus_attention(q, k, v, membership, backend="decomposed", **setting)
    assert isinstance(exact, Tensor)
    assert isinstance(found, Tensor)
    return (found.double() - exact).abs().max().item()


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return {
        "cpu": model, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "python": platform.python_version(),
        "torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability(),
    }  # fmt: skip


def main() -> None:
    """Run everything and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    rows = []
    for length in LENGTHS:
        for sinks in (0, 4):
            rows.append(speed(length, arguments.repeats, sinks))
            print(f"{length:>6} tokens, {sinks} sinks: {rows[-1]['full_over_focus']:.2f}x", flush=True)
    errors = {str(sinks): error(sinks) for sinks in (0, 4)}
    print(f"largest error against float64 at {ERROR_LENGTH} tokens: {errors}")
    result = {
        "what": "one layer, 12 heads of 64, K=8 balanced random groups, k=1, w=128, fp32",
        "machine": machine(), "speed": rows, "max_abs_error_vs_float64": errors,
    }  # fmt: skip
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
