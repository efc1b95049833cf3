"""One attention layer on a GPU: exact Focus against full attention with the same kernel, METHOD section 7's table.

12 heads of 64 in bf16, K = 4 and 8, k = 1 and 2, w = 128, balanced random groups, 1K to 1M tokens. In each round full
attention and every Focus setting take one turn, so a drift of the clock hits all; times are CUDA events, medians and
extremes over rounds. Focus includes sorting, gathering, all parts and the merge; routing is not part of it. Beside the
same kernel stands torch's scaled_dot_product_attention, which may pick a faster one. The graph columns replay a CUDA
graph instead of launching every kernel from Python, for both.

    python benchmarks/attention_gpu.py --out benchmarks/results/attention_gpu.json
    python benchmarks/attention_gpu.py --device cpu --lengths 256,512     # smoke run of the script, measures no GPU
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import focus_runtime
from focus_runtime.attention.cuda.decomposed import flash_decomposition
from focus_runtime.attention.kernels.varlen import PLAIN, Kernel, best_kernel
from focus_runtime.attention.reference import reference_attention
from focus_runtime.attention.scoring import Scoring
from focus_runtime.mask.extent import Extent
from focus_runtime.mask.rule import PairRule

HEADS, HEAD_SIZE, WINDOW = 12, 64, 128
SCALE = HEAD_SIZE**-0.5
SETTINGS = ((4, 1), (8, 1), (4, 2), (8, 2))
LENGTHS = (1024, 4096, 16384, 32768, 65536, 262144, 1048576)
GRAPH_UP_TO = 65536  # tokens; beyond, launching costs nothing that shows
ERROR_LENGTH = 4096
MOST_ROUNDS, FEWEST_ROUNDS = 30, 2
REPORTED: dict[int, dict[int, float]] = {  # full / Focus on an H100-80GB, METHOD section 7; k is not stated there
    4: dict(zip(LENGTHS, (0.2, 0.5, 1.5, 2.2, 3.0, 4.0, 4.1), strict=True)),
    8: dict(zip(LENGTHS, (0.2, 0.6, 1.8, 3.1, 4.7, 7.6, 8.6), strict=True)),
}
Work = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things run: device, kernel, dtype, seed, sinks and the second by which to stop."""

    device: torch.device
    kernel: Kernel
    dtype: torch.dtype
    seed: int
    num_sinks: int
    deadline: float

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

    def milliseconds(self, work: Work) -> float:
        """Time of one call on the device."""
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


def random_inputs(bench: Bench, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Unit-normal query, key and value (1, 12, T, 64), laid out (1, T, 12, 64) as models hand them over."""
    generator = torch.Generator(bench.device).manual_seed(bench.seed + length)
    shape = (1, length, HEADS, HEAD_SIZE)
    q, k, v = (torch.randn(shape, generator=generator, device=bench.device, dtype=bench.dtype) for _ in range(3))
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def random_membership(bench: Bench, length: int, groups: int, top_k: int) -> Tensor:
    """(1, T) bit sets: each token's first group is balanced, the others follow it at random."""
    generator = torch.Generator(bench.device).manual_seed(bench.seed + 31 * groups + top_k)
    first = torch.randperm(length, generator=generator, device=bench.device) % groups
    member = torch.bitwise_left_shift(torch.ones_like(first), first)
    if top_k == 2:
        step = torch.randint(1, groups, (length,), generator=generator, device=bench.device)
        member = member | torch.bitwise_left_shift(torch.ones_like(first), (first + step) % groups)
    return member[None]


def share_of_pairs(membership: Tensor) -> float:
    """Share of all pairs that have a group in common: a bound on any exact speedup, 1 / share, for long inputs."""
    sets, counts = torch.unique(membership, return_counts=True)
    meet = (sets[:, None] & sets[None, :]) != 0
    weight = counts.double() / counts.sum()
    return (weight[:, None] * weight[None, :] * meet).sum().item()


def spread(values: list[float]) -> dict[str, float]:
    """Median, extremes and count."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "rounds": len(values)}


def works(
    bench: Bench, inputs: tuple[Tensor, Tensor, Tensor], members: dict[tuple[int, int], Tensor]
) -> dict[str, Work]:
    """What takes turns: full attention by the same kernel, by torch's choice, and each setting of Focus."""
    length = inputs[0].shape[2]
    flat = [x.transpose(1, 2).flatten(0, 1) for x in inputs]
    cu_lengths = torch.tensor([0, length], dtype=torch.int32, device=bench.device)

    def focus(groups: int, top_k: int) -> Work:
        return lambda: flash_decomposition(
            *inputs,
            members[groups, top_k],
            PairRule(WINDOW, bench.num_sinks),
            SCALE,
            kernel=bench.kernel,
            extent=Extent(groups, top_k, True),
        )

    def sdpa() -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True, scale=SCALE)

    return {
        "full": lambda: bench.kernel.run(flat[0], flat[1], flat[2], cu_lengths, length, SCALE, None),
        "full_sdpa": sdpa,
        **{f"K={groups} k={top_k}": focus(groups, top_k) for groups, top_k in members},
    }


def interleaved(bench: Bench, turns: dict[str, Work], seconds: float) -> dict[str, dict[str, float]]:
    """Rounds until `seconds` are used up, at least two after one to warm up."""
    times: dict[str, list[float]] = defaultdict(list)
    start = time.perf_counter()
    for round_number in range(MOST_ROUNDS + 1):
        for name, work in turns.items():
            elapsed = bench.milliseconds(work)
            if round_number:
                times[name].append(elapsed)
        if round_number >= FEWEST_ROUNDS and time.perf_counter() - start > seconds:
            break
    return {name: spread(values) for name, values in times.items()}


def captured(work: Work) -> Work:
    """The same work as one CUDA graph, warmed up on a side stream first, as capture asks."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def peak_bytes(bench: Bench, work: Work) -> int | None:
    """Memory that one call takes beyond its inputs."""
    if not bench.on_gpu:
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def stage_times(
    bench: Bench, inputs: tuple[Tensor, Tensor, Tensor], membership: Tensor, extent: Extent
) -> dict[str, float]:
    """Median milliseconds by stage over three calls. Waiting between stages makes short lengths sum to more."""
    totals: dict[str, list[float]] = defaultdict(list)
    for _ in range(4):
        once: dict[str, float] = defaultdict(float)

        @contextmanager
        def stage(name: str, once: dict[str, float] = once) -> Iterator[None]:
            bench.synchronise()
            start = time.perf_counter()
            yield
            bench.synchronise()
            once[name] += (time.perf_counter() - start) * 1000

        flash_decomposition(
            *inputs,
            membership,
            PairRule(WINDOW, bench.num_sinks),
            SCALE,
            kernel=bench.kernel,
            extent=extent,
            stage=stage,
        )
        for name, elapsed in once.items():
            totals[name].append(elapsed)
    return {name: statistics.median(values[1:]) for name, values in totals.items()}


def measure(bench: Bench, length: int, seconds: float) -> dict[str, Any]:
    """One row of the table."""
    inputs = random_inputs(bench, length)
    members = {setting: random_membership(bench, length, *setting) for setting in SETTINGS}
    turns = works(bench, inputs, members)
    times = interleaved(bench, turns, seconds)
    graphs: dict[str, dict[str, float]] = {}
    if bench.on_gpu and length <= GRAPH_UP_TO:
        graphs = interleaved(bench, {n: captured(w) for n, w in turns.items() if n != "full_sdpa"}, seconds / 4)
    row: dict[str, Any] = {
        "tokens": length,
        "full_ms": times["full"],
        "full_sdpa_ms": times["full_sdpa"],
        "full_graph_ms": graphs.get("full"),
        "full_peak_bytes": peak_bytes(bench, turns["full"]),
        "focus": [],
    }
    for (groups, top_k), membership in members.items():
        name = f"K={groups} k={top_k}"
        case: dict[str, Any] = {
            "K": groups,
            "k": top_k,
            "focus_ms": times[name],
            "full_over_focus": times["full"]["median"] / times[name]["median"],
            "sdpa_over_focus": times["full_sdpa"]["median"] / times[name]["median"],
            "graph_ms": graphs.get(name),
            "graph_full_over_focus": graphs["full"]["median"] / graphs[name]["median"] if graphs else None,
            "share_of_pairs": share_of_pairs(membership),
            "peak_bytes": peak_bytes(bench, turns[name]),
            "reported_full_over_focus": REPORTED[groups].get(length),
        }
        if bench.seconds_left > 5 * times[name]["median"] / 1000:
            case["stage_ms"] = stage_times(bench, inputs, membership, Extent(groups, top_k, True))
        row["focus"].append(case)
    return row


def errors(bench: Bench, length: int) -> list[dict[str, Any]]:
    """Largest absolute difference from float64 and least cosine over queries, for Focus and for full attention."""
    inputs = random_inputs(bench, length)
    query, key, value = (part.double() for part in inputs)
    everyone = torch.ones(1, length, dtype=torch.int64, device=bench.device)
    cases = [("full", 1, 1, everyone)] + [("focus", *s, random_membership(bench, length, *s)) for s in SETTINGS]
    rows = []
    for name, groups, top_k, membership in cases:
        rule = PairRule(WINDOW, bench.num_sinks)
        extent = Extent(groups, top_k, True)
        out, lse = flash_decomposition(*inputs, membership, rule, SCALE, kernel=bench.kernel, extent=extent)
        exact, exact_lse = reference_attention(query, key, value, membership, rule, Scoring(SCALE))
        cosine = torch.nn.functional.cosine_similarity(out.double(), exact, dim=-1)
        rows.append(
            {
                "what": name,
                "K": groups,
                "k": top_k,
                "tokens": length,
                "max_abs_error": (out.double() - exact).abs().max().item(),
                "max_abs_error_logsumexp": (lse.double() - exact_lse).abs().max().item(),
                "least_cosine": cosine.min().item(),
                "mean_cosine": cosine.mean().item(),
            }
        )
    return rows


def machine(bench: Bench) -> dict[str, Any]:
    """What the numbers depend on."""
    details: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "focus_runtime": focus_runtime.__version__,
        "kernel": bench.kernel.name,
    }
    if bench.on_gpu:
        card = torch.cuda.get_device_properties(bench.device)
        details |= {
            "gpu": card.name,
            "memory_bytes": card.total_memory,
            "multiprocessors": card.multi_processor_count,
            "capability": f"{card.major}.{card.minor}",
            "cuda": torch.version.cuda,
            "driver": driver_version(),
        }
    return details


def driver_version() -> str | None:
    """Of the NVIDIA driver, None without nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout.strip() or None


def predicted_seconds(rows: list[dict[str, Any]], length: int) -> float:
    """A round's time at a length, from the last row: every part grows at most with the square."""
    if not rows or "full_ms" not in rows[-1]:
        return 0.0
    last = rows[-1]
    once = last["full_ms"]["median"] + last["full_sdpa_ms"]["median"]
    once += sum(case["focus_ms"]["median"] for case in last["focus"])
    return once / 1000 * (length / last["tokens"]) ** 2


def show(row: dict[str, Any]) -> None:
    """One line a setting."""
    if "skipped" in row:
        print(f"{row['tokens']:>8}  skipped: {row['skipped']}", flush=True)
        return
    for case in row["focus"]:
        graph = case["graph_full_over_focus"]
        print(
            f"{row['tokens']:>8}  K={case['K']} k={case['k']}  full {row['full_ms']['median']:10.3f} ms  "
            f"focus {case['focus_ms']['median']:10.3f} ms  {case['full_over_focus']:6.2f}x"
            f"  as graphs {f'{graph:5.2f}x' if graph else '    -'}  against sdpa {case['sdpa_over_focus']:6.2f}x"
            f"  (paper reported {case['reported_full_over_focus'] or '-'}x)",
            flush=True,
        )


@torch.no_grad()
def run(bench: Bench, lengths: list[int]) -> dict[str, Any]:
    """All rows; a length whose rounds would pass the deadline is skipped and says so."""
    error_rows = errors(bench, max((n for n in lengths if n <= ERROR_LENGTH), default=ERROR_LENGTH))
    for error in error_rows:
        print(f"{error['what']} K={error['K']} k={error['k']}: largest error {error['max_abs_error']:.2e} vs float64")
    rows: list[dict[str, Any]] = []
    for place, length in enumerate(sorted(lengths)):
        needed = predicted_seconds([row for row in rows if "skipped" not in row], length) * (2 * FEWEST_ROUNDS + 4)
        if needed > bench.seconds_left:
            rows.append(
                {"tokens": length, "skipped": f"would take about {needed:.0f} s of {bench.seconds_left:.0f} left"}
            )
        else:
            rows.append(measure(bench, length, min(20.0, 0.3 * bench.seconds_left / (len(lengths) - place))))
        show(rows[-1])
    return {
        "what": "one layer, 12 heads of 64, balanced random groups, w=128, full attention by the same kernel beside it",
        "measures_a_gpu": bench.on_gpu,
        "dtype": str(bench.dtype),
        "window": WINDOW,
        "num_sinks": bench.num_sinks,
        "seed": bench.seed,
        "machine": machine(bench),
        "errors_vs_float64": error_rows,
        "rows": rows,
        "reported": {"source": "arXiv 2604.03260, H100-80GB, k not stated", "full_over_focus": REPORTED},
    }


def main(arguments: list[str] | None = None) -> None:
    """Run everything and write one JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: smoke run, no measurement")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="tokens, separated by commas")
    parser.add_argument("--sinks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540.0, help="time for everything")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA GPU found; use --device cpu for a smoke run of the script")
    device = torch.device(chosen.device)
    kernel = best_kernel(device, torch.bfloat16, HEAD_SIZE) if chosen.device == "cuda" else PLAIN
    deadline = time.perf_counter() + chosen.seconds
    bench = Bench(device, kernel, torch.bfloat16, chosen.seed, chosen.sinks, deadline)
    result = run(bench, [int(length) for length in chosen.lengths.split(",")])
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
