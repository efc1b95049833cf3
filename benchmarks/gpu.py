"""Everything a GPU should be asked in ten minutes, ordered by worth; results are written after every part.

    make gpu                                              # on a machine with torch, transformers and safetensors alone
    python benchmarks/gpu.py --out FOLDER [--seconds 540]
    python benchmarks/gpu.py --device cpu --out FOLDER    # smoke run of the script, measures no GPU

1. The tests marked `gpu` (where pytest is installed).
2. One attention layer, 1K to 1M tokens: attention_gpu.py.
3. Whole models of random weights in the shape of Llama 3.2 1B and Llama 2 7B: prefill and decode at 8K to 128K tokens.
4. `analyze` on the smaller of them, from text to trace.

A part that fails is written down with its error, and the next one runs. FOLDER gets gpu.json and gpu.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks import attention_gpu
from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import first_line
from focus_runtime.failures import is_out_of_memory
from focus_runtime.measure.speed import decode_speed, prefill_speed
from focus_runtime.routing.centroids import random_centroids
from focus_runtime.run.engine import RunOptions, analyze
from focus_runtime.training.calibrate import calibrate_potentials
from tests.helpers import TINY, build_tokenizer

ROOT = Path(__file__).parents[1]
SHAPES: dict[str, dict[str, int]] = {
    "Llama 3.2 1B": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
    },
    "Llama 2 7B": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
    },
}
LENGTHS = (8192, 16384, 32768, 65536, 131072)
SMOKE_SHAPES = {"tiny": TINY}
SMOKE_LENGTHS, SMOKE_TABLE = (192, 256), [160, 192]
FOCUS = FocusConfig(num_groups=8, top_k=1, window=128, num_sinks=4)
VOCABULARY, DECODE_STEPS, CALIBRATION_TOKENS = 32000, 16, 2048
SHARES = {
    "tests": 0.2,
    "layer": 0.45,
    "models": 0.85,
    "analyze": 1.0,
}  # of the time, at which each part must have ended


@dataclass(slots=True)
class Report:
    """Results so far, written after every addition.

    Attributes:
        folder: gets gpu.json and gpu.md.
        seconds: for everything.
        smoke: on the CPU, with small shapes.
        results: by part.
        start: `time.perf_counter()` at the beginning.
    """

    folder: Path
    seconds: float
    smoke: bool
    results: dict[str, Any] = field(default_factory=dict)
    start: float = field(default_factory=time.perf_counter)

    @property
    def device(self) -> torch.device:
        """Where the models run."""
        return torch.device("cpu" if self.smoke else "cuda")

    def left(self, part: str) -> float:
        """Seconds until a part must have ended."""
        return self.seconds * SHARES[part] - (time.perf_counter() - self.start)

    def write(self) -> None:
        """Both files, whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "gpu.json").write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        (self.folder / "gpu.md").write_text(as_markdown(self.results), encoding="utf-8")

    def add(self, part: str, work: Callable[[], Any]) -> None:
        """Do one part and write what it gave, or its error."""
        before = time.perf_counter()
        try:
            self.results[part] = work()
        except Exception as error:  # whatever a kernel, compiler or driver raises is a result here
            self.results[part] = {"error": f"{type(error).__name__}: {first_line(error)}"}
        self.results.setdefault("seconds", {})[part] = round(time.perf_counter() - before, 1)
        self.write()
        print(f"{part}: {self.results['seconds'][part]} s", flush=True)


def gpu_tests(report: Report) -> dict[str, Any]:
    """Last lines of `pytest -m gpu`."""
    if importlib.util.find_spec("pytest") is None:
        return {"skipped": "pytest is not installed"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "tests/runtime/attention/cuda",
        "-p",
        "no:cacheprovider",
    ]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=max(1.0, report.left("tests"))
        )
    except subprocess.TimeoutExpired as expired:
        tail = expired.stdout or b""
        return {"error": "out of time", "tail": tail.decode(errors="replace").splitlines()[-15:]}
    return {"status": done.returncode, "tail": done.stdout.splitlines()[-40:]}


def layer_table(report: Report) -> dict[str, Any]:
    """attention_gpu.py, in its share of the time."""
    on_gpu = not report.smoke
    kernel = attention_gpu.best_kernel(report.device, torch.bfloat16, 64) if on_gpu else attention_gpu.PLAIN
    deadline = time.perf_counter() + report.left("layer")
    bench = attention_gpu.Bench(report.device, kernel, torch.bfloat16, seed=1, num_sinks=4, deadline=deadline)
    return attention_gpu.run(bench, SMOKE_TABLE if report.smoke else list(attention_gpu.LENGTHS))


@contextmanager
def random_model(shape: dict[str, Any], longest: int, device: torch.device) -> Iterator[FocusModel]:
    """A Llama of random weights in bf16 with random, balanced centroids; its memory is free afterwards."""
    torch.manual_seed(0)
    config = LlamaConfig(**shape | {"vocab_size": VOCABULARY, "max_position_embeddings": longest + 2 * DECODE_STEPS})
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)
    model.requires_grad_(False)
    centroids = random_centroids(model, FOCUS)
    for router in centroids.routers.values():
        router.to(device)
    calibrate_potentials(model, centroids, random_ids(CALIBRATION_TOKENS, device))
    focus = compose(model, centroids)
    try:
        yield focus
    finally:
        focus.detach()
        del model, centroids, focus
        if device.type == "cuda":
            torch.cuda.empty_cache()


def random_ids(length: int, device: torch.device) -> torch.Tensor:
    """(1, T) token ids."""
    return torch.randint(3, VOCABULARY, (1, length), generator=torch.Generator().manual_seed(0)).to(device)


def whole_models(report: Report) -> dict[str, list[dict[str, Any]]]:
    """Prefill and decode by shape and length, until the time is used up or the memory runs out."""
    lengths = SMOKE_LENGTHS if report.smoke else LENGTHS
    rows: dict[str, list[dict[str, Any]]] = {}
    shapes = SMOKE_SHAPES if report.smoke else SHAPES
    for number, (name, shape) in enumerate(shapes.items()):
        rows[name] = []
        report.results["models"] = rows
        until = report.left("models") * (number + 1) / len(shapes)
        began = time.perf_counter()
        with random_model(shape, max(lengths), report.device) as focus:
            last = 0.0
            for length in lengths:
                spent = time.perf_counter() - began
                if spent + 4 * last > until:  # a doubled length takes up to four times as long
                    rows[name].append({"tokens": length, "skipped": f"{max(0.0, until - spent):.0f} s were left"})
                    continue
                before = time.perf_counter()
                rows[name].append(one_length(focus, length, report.device))
                last = time.perf_counter() - before
                report.write()
    return rows


def one_length(focus: FocusModel, length: int, device: torch.device) -> dict[str, Any]:
    """Prefill and decode of one model at one length; running out of memory is a result."""
    row: dict[str, Any] = {"tokens": length}
    ids = random_ids(length, device)
    for name, work in (
        ("prefill", lambda: prefill_speed(focus, ids, repeats=2)),
        ("decode", lambda: decode_speed(focus, ids, steps=DECODE_STEPS)),
    ):
        try:
            row[name] = work()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            row[name] = {"error": "out of memory"}
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return row


def one_analysis(report: Report) -> dict[str, Any]:
    """A text through `analyze`, with every measurement the page shows."""
    name, shape = next(iter((SMOKE_SHAPES if report.smoke else SHAPES).items()))
    length = SMOKE_LENGTHS[0] if report.smoke else LENGTHS[0]
    text = "The harbour was quiet, and the cat came back again. " * (length // 50 + 1)
    with random_model(shape, length, report.device) as focus:
        model = focus.detach()
        centroids = random_centroids(model, FOCUS)
        calibrate_potentials(
            model, centroids, random_ids(CALIBRATION_TOKENS if not report.smoke else 256, report.device)
        )
        before = time.perf_counter()
        trace = analyze(
            model, build_tokenizer(), text, centroids, RunOptions(max_tokens=length, repeats=3, attention_mass=True)
        )
        seconds = time.perf_counter() - before
    medians: dict[str, float] = {}
    for timing in trace.timings:
        medians.setdefault(f"{timing.mode} {timing.stage}", timing.milliseconds)
    return {
        "model": name,
        "tokens": trace.num_tokens,
        "seconds": seconds,
        "info": {key: trace.info[key] for key in ("device", "dtype", "backend")},
        "retained_pairs": [layer.retained_pairs for layer in trace.layers],
        "attention_mass_kept": [layer.attention_mass_retained for layer in trace.layers],
        "first_timings_ms": medians,
    }


def as_markdown(results: dict[str, Any]) -> str:
    """The results as tables, failures included."""
    machine = results.get("layer", {}).get("machine", {})
    lines = [f"# {machine.get('gpu', 'No GPU: smoke run')}", "", f"`{json.dumps(machine)}`", ""]
    tests = results.get("tests", {})
    lines += ["## Tests", "", *(f"    {line}" for line in tests.get("tail", [])[-3:] or [json.dumps(tests)]), ""]
    lines += ["## One layer, 12 heads of 64, bf16, w = 128: full attention / Focus, both by the same kernel", ""]
    if "rows" in results.get("layer", {}):
        lines += [
            "| tokens | K | k | full ms | Focus ms | same kernel | SDPA | 1 / pairs | paper |",
            "|---|" + "---|" * 8,
        ]
        for row in results["layer"]["rows"]:
            for case in row.get("focus", []):
                lines.append(
                    f"| {row['tokens']:,} | {case['K']} | {case['k']} | {row['full_ms']['median']:.2f} "
                    f"| {case['focus_ms']['median']:.2f} | {case['full_over_focus']:.2f} "
                    f"| {case['sdpa_over_focus']:.2f} | {1 / case['share_of_pairs']:.2f} "
                    f"| {case['reported_full_over_focus'] or ''} |"
                )
            if "skipped" in row:
                lines.append(f"| {row['tokens']:,} | | | {row['skipped']} | | | | | |")
    else:
        lines.append(json.dumps(results.get("layer", {})))
    for name, rows in results.get("models", {}).items() if "error" not in results.get("models", {}) else ():
        lines += ["", f"## {name}, random weights: full attention / Focus", ""]
        lines += ["| tokens | prefill | prefill ms | decode | decode ms | peak GB full, Focus |", "|---|" + "---|" * 5]
        lines += [_model_row(row) for row in rows]
    if "error" in results.get("models", {}):
        lines += ["", "## Whole models", "", results["models"]["error"]]
    lines += ["", "## analyze", "", f"`{json.dumps(results.get('analyze', {}))[:2000]}`", ""]
    return "\n".join(lines)


def _model_row(row: dict[str, Any]) -> str:
    if "skipped" in row:
        return f"| {row['tokens']:,} | {row['skipped']} | | | | |"
    cells = [f"{row['tokens']:,}"]
    for part in (row["prefill"], row["decode"]):
        failed = part.get("error")
        cells.append(failed or f"{part['full_over_focus']:.2f}")
        cells.append("" if failed else f"{part['full_ms']['median']:.1f}, {part['focus_ms']['median']:.1f}")
    peaks = row["prefill"].get("peak_bytes", {})
    known = [peaks.get(mode) for mode in ("full", "focus")]
    cells.append(", ".join("" if value is None else f"{value / 1e9:.2f}" for value in known))
    return "| " + " | ".join(cells) + " |"


def main(arguments: list[str] | None = None) -> None:
    """All parts in order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu.json and gpu.md")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: smoke run, no measurement")
    parser.add_argument("--seconds", type=float, default=540.0, help="time for everything")
    parser.add_argument("--part", choices=tuple(SHARES), action="append", help="only these")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA GPU found; use --device cpu for a smoke run of the script")
    report = Report(chosen.out, chosen.seconds, smoke=chosen.device == "cpu")
    parts: dict[str, Callable[[Report], Any]] = {
        "tests": gpu_tests,
        "layer": layer_table,
        "models": whole_models,
        "analyze": one_analysis,
    }
    for name in chosen.part or parts:
        report.add(name, partial(parts[name], report))
    print((chosen.out / "gpu.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
