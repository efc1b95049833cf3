"""One attention layer on a GPU: exact Focus against full attention, beside the paper's Table 6.

Heads of three shapes in bf16, K = 4 and 8, k = 1 and 2, w = 128, 1K to 1M tokens. Focus begins with the hidden states:
routing, sorting and all of the attention are counted. Hidden states and centroids are random, groups therefore nearly
equal; pairs kept are counted exactly. Full attention is torch's FlashAttention 2 and its cuDNN kernel. In each round
every way takes one turn, so a drift of the clock hits all; times are CUDA events, medians and extremes over rounds. The
graph columns replay a CUDA graph in place of launches from Python.

    python -m benchmarks.attention_gpu --out benchmarks/results/attention_gpu.json
    python -m benchmarks.attention_gpu --device cpu --lengths 256,512     # smoke run of the script, measures no GPU
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
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import focus_runtime
from benchmarks.layer_gpu import (
    BACKENDS,
    FEWEST_ROUNDS,
    SETTINGS,
    SHAPES,
    Bench,
    Layer,
    Shape,
    Work,
    captured,
    interleaved,
    random_layer,
)
from focus_runtime.attention.decomposed import GROUPED, gpu_decomposition, grouped_fits
from focus_runtime.attention.reference import reference_attention
from focus_runtime.errors import first_line
from focus_runtime.failures import is_out_of_memory
from focus_runtime.mask.rule import Extent, PairRule

WINDOW, SINKS = 128, 4
LENGTHS = tuple(1 << power for power in range(10, 21))
GRAPH_UP_TO = 16384  # tokens; beyond, launching costs nothing that shows
ONE_CALL_FROM = 200_000  # tokens from which a first round that warms up is left out: lengths before have done it
NO_SINKS_AT = (16384, 65536)  # lengths that are measured without sinks too
ERROR_LENGTH = 4096
PAPER_LENGTHS = (1024, 4096, 16384, 32768, 65536, 262144, 1048576)
REPORTED: dict[int, dict[int, float]] = {  # full / Focus on an H100-80GB, Table 6; k is not stated there
    4: dict(zip(PAPER_LENGTHS, (0.2, 0.5, 1.5, 2.2, 3.0, 4.0, 4.1), strict=True)),
    8: dict(zip(PAPER_LENGTHS, (0.2, 0.6, 1.8, 3.1, 4.7, 7.6, 8.6), strict=True)),
}


def pairs_kept(membership: Tensor, window: int, sinks: int) -> float:
    """Share of causal pairs that the hard mask allows, counted exactly: no exact Focus is faster than 1 over it.

    Args:
        membership: (1, T) bit sets.
        window: w.
        sinks: s.
    """
    member_sets, length = membership[0], membership.shape[1]
    position = torch.arange(length, device=member_sets.device)
    far_from = (position - window).clamp_min(0)  # keys before it are far
    kept = (position + 1 - far_from).sum().item()  # near ones
    kinds = torch.unique(member_sets)
    for kind in kinds:
        meets = ((member_sets & kind) != 0) | (position < sinks)
        before = torch.nn.functional.pad(meets.cumsum(0), (1, 0))
        kept += before[far_from[member_sets == kind]].sum().item()
    return kept / (length * (length + 1) / 2)


def full_ways(bench: Bench, layer: Layer) -> dict[str, Work]:
    """Full attention by every kernel at hand; those of torch run inside `chosen`."""
    scale, (query, key, value) = layer.scoring.scale, layer.tensors
    shared = query.shape[1] != key.shape[1]

    def sdpa() -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=shared
        )

    if not bench.on_gpu:
        return {"torch": sdpa}
    return dict.fromkeys(BACKENDS, sdpa)


def focus_way(layer: Layer, groups: int, top_k: int, sinks: int) -> Work:
    """Routing and Focus."""
    rule, extent = PairRule(WINDOW, sinks), Extent(groups, top_k, uniform=True)

    def run() -> Tensor:
        membership = layer.membership(groups, top_k)
        return gpu_decomposition(*layer.tensors, membership, rule, layer.scoring, extent=extent)[0]

    return run


def stage_times(bench: Bench, layer: Layer, groups: int, top_k: int) -> dict[str, float]:
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

        with stage("routing"):
            membership = layer.membership(groups, top_k)
        rule, extent = PairRule(WINDOW, SINKS), Extent(groups, top_k, uniform=True)
        gpu_decomposition(*layer.tensors, membership, rule, layer.scoring, extent=extent, stage=stage)
        for name, elapsed in once.items():
            totals[name].append(elapsed)
    return {name: statistics.median(values[1:]) for name, values in totals.items()}


def measure(bench: Bench, shape: Shape, length: int, seconds: float) -> dict[str, Any]:
    """One row of the table."""
    layer = random_layer(bench, shape, length)
    full = full_ways(bench, layer)
    cases = [(groups, top_k, SINKS) for groups, top_k in SETTINGS]
    if length in NO_SINKS_AT:
        cases.append((8, 1, 0))
    focus = {case: focus_way(layer, *case) for case in cases}
    turns: dict[str, Work] = {**full, **{f"{case}": way for case, way in focus.items()}}
    times = interleaved(bench, turns, seconds, warm_up=length < ONE_CALL_FROM)
    graphs: dict[str, dict[str, float]] = {}
    if bench.on_gpu and length <= GRAPH_UP_TO:
        graphs = interleaved(bench, {n: captured(n, w) for n, w in turns.items()}, seconds / 3, warm_up=True)
    row: dict[str, Any] = {
        "shape": shape.name,
        "tokens": length,
        "full_ms": {name: times[name] for name in full},
        "full_graph_ms": {name: graphs[name] for name in full} if graphs else None,
        "focus": [],
    }
    for case in focus:
        groups, top_k, sinks = case
        kept = pairs_kept(layer.membership(groups, top_k), WINDOW, sinks)
        row["focus"].append(
            {
                "K": groups,
                "k": top_k,
                "sinks": sinks,
                "ms": times[f"{case}"],
                "graph_ms": graphs.get(f"{case}"),
                "full_over_focus": {name: times[name]["median"] / times[f"{case}"]["median"] for name in full},
                "graph_full_over_focus": {
                    name: graphs[name]["median"] / graphs[f"{case}"]["median"] for name in full if graphs
                },
                "pairs_kept": kept,
                "paper": REPORTED[groups].get(length) if shape == SHAPES[0] else None,
                "stage_ms": stage_times(bench, layer, groups, top_k) if bench.on_gpu and length <= 65536 else None,
            }
        )
    return row


def errors(bench: Bench, shape: Shape, length: int) -> list[dict[str, Any]]:
    """Largest absolute difference from float64, relative error and least cosine over queries of Focus."""
    layer, rows = random_layer(bench, shape, length), []
    exact = [part.double() for part in layer.tensors]
    for (groups, top_k), router in layer.routers.items():
        membership = router.own_assignment(layer.hidden).membership
        rule, extent = PairRule(WINDOW, SINKS), Extent(groups, top_k, uniform=True)
        out, lse = gpu_decomposition(*layer.tensors, membership, rule, layer.scoring, extent=extent)
        expected, expected_lse = reference_attention(exact[0], exact[1], exact[2], membership, rule, layer.scoring)
        cosine = torch.nn.functional.cosine_similarity(out.double(), expected, dim=-1)
        rows.append(
            {
                "shape": shape.name,
                "K": groups,
                "k": top_k,
                "tokens": length,
                "relative_error": ((out.double() - expected).norm() / expected.norm()).item(),
                "max_abs_error": (out.double() - expected).abs().max().item(),
                "max_abs_error_logsumexp": (lse.double() - expected_lse).abs().max().item(),
                "least_cosine": cosine.min().item(),
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
    }
    if bench.on_gpu:
        import triton

        card = torch.cuda.get_device_properties(bench.device)
        probe = random_layer(bench, SHAPES[0], 64)
        fits = grouped_fits(*probe.tensors, WINDOW, probe.scoring)
        details |= {
            "triton": triton.__version__,
            "focus_kernels": GROUPED if fits else "flash and merge",
            "gpu": card.name,
            "memory_bytes": card.total_memory,
            "multiprocessors": card.multi_processor_count,
            "capability": f"{card.major}.{card.minor}",
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
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


def predicted_seconds(rows: list[dict[str, Any]], shape: Shape, length: int) -> float:
    """A round's time at a length, from the shape's last row: every part grows at most with the square."""
    known = [row for row in rows if row["shape"] == shape.name and "full_ms" in row]
    if not known:
        return 0.0
    once = sum(times["median"] for times in known[-1]["full_ms"].values())
    once += sum(case["ms"]["median"] for case in known[-1]["focus"])
    return once / 1000 * (length / known[-1]["tokens"]) ** 2


def show(row: dict[str, Any]) -> None:
    """One line a setting."""
    if "skipped" in row:
        print(f"{row['shape']:>40} {row['tokens']:>8}  {row['skipped']}", flush=True)
        return
    for case in row["focus"]:
        ratios = "  ".join(f"{name} {ratio:5.2f}" for name, ratio in case["full_over_focus"].items())
        graphs = "  ".join(f"{ratio:5.2f}" for ratio in case["graph_full_over_focus"].values())
        print(
            f"{row['shape']:>40} {row['tokens']:>8} K={case['K']} k={case['k']} s={case['sinks']} "
            f"focus {case['ms']['median']:9.3f} ms  full/focus: {ratios}  as graphs {graphs or '-'}  "
            f"1/pairs {1 / case['pairs_kept']:5.2f}  paper {case['paper'] or '-'}",
            flush=True,
        )


@torch.no_grad()
def run(
    bench: Bench,
    lengths: list[int],
    shapes: tuple[Shape, ...] = SHAPES,
    progress: Callable[[dict[str, Any]], None] = lambda result: None,
    others_up_to: int = LENGTHS[-1],
) -> dict[str, Any]:
    """All rows by length; one whose rounds would pass the deadline is skipped and says so.

    Args:
        bench: where.
        lengths: tokens.
        shapes: of the heads.
        progress: takes the result so far, after every row.
        others_up_to: the longest length of all shapes but the first.
    """
    result: dict[str, Any] = {
        "what": "one layer, random tensors, full attention beside routing and Focus",
        "measures_a_gpu": bench.on_gpu,
        "dtype": str(bench.dtype),
        "window": WINDOW,
        "seed": bench.seed,
        "machine": machine(bench),
        "errors_vs_float64": [],
        "rows": [],
        "paper": {"source": "arXiv 2604.03260, Table 6, H100-80GB, k not stated", "full_over_focus": REPORTED},
    }
    rows = result["rows"]
    for shape in shapes:
        result["errors_vs_float64"] += errors(bench, shape, max((n for n in lengths if n <= ERROR_LENGTH), default=256))
    for length in sorted(lengths):
        for shape in shapes:
            rows.append(_row(bench, shape, length, rows, others_up_to if shape != shapes[0] else length))
            show(rows[-1])
            progress(result)
    return result


def _row(bench: Bench, shape: Shape, length: int, rows: list[dict[str, Any]], longest: int) -> dict[str, Any]:
    row: dict[str, Any] = {"shape": shape.name, "tokens": length}
    if length > longest:
        return row | {"skipped": "not measured: left out, for lack of time"}
    needed = predicted_seconds(rows, shape, length) * (FEWEST_ROUNDS + (length < ONE_CALL_FROM))
    if needed > bench.seconds_left:
        reason = f"not measured: would take about {needed:.0f} s of {bench.seconds_left:.0f} left"
        return row | {"skipped": reason}
    return _measured(bench, shape, length)


def _measured(bench: Bench, shape: Shape, length: int) -> dict[str, Any]:
    try:
        return measure(bench, shape, length, seconds=0.5)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return {"shape": shape.name, "tokens": length, "skipped": f"not measured: {first_line(error)}"}
    finally:
        if bench.on_gpu:
            torch.cuda.empty_cache()


def main(arguments: list[str] | None = None) -> None:
    """Run everything and write one JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: smoke run, no measurement")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="tokens, separated by commas")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="how many of the shapes, in order")
    parser.add_argument("--others-up-to", type=int, default=LENGTHS[-1], help="longest length of all shapes but one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540.0, help="time for everything")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA GPU found; use --device cpu for a smoke run of the script")
    bench = Bench(torch.device(chosen.device), chosen.seed, time.perf_counter() + chosen.seconds)

    def write(result: dict[str, Any]) -> None:
        if chosen.out is not None:
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            chosen.out.write_text(json.dumps(result, indent=1) + "\n")

    lengths = [int(length) for length in chosen.lengths.split(",")]
    write(run(bench, lengths, SHAPES[: chosen.shapes], write, chosen.others_up_to))


if __name__ == "__main__":
    main()
