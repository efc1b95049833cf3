"""Everything a GPU should be asked in ten minutes, ordered by worth; results are written after every part.

    make gpu                                              # on a machine with torch, transformers and safetensors alone
    python benchmarks/gpu.py --out FOLDER [--seconds 540] [--model FILE.gguf --text FILE]
    python benchmarks/gpu.py --device cpu --out FOLDER    # smoke run of the script, measures no GPU

1. `tests`: those marked `gpu` (where pytest is installed).
2. `layer`: one attention layer, 1K to 1M tokens, attention_gpu.py.
3. `models`: random weights in the shape of Llama 3.2 1B, Mistral 7B and Gemma 2 9B: prefill and decode at 8K to 128K
   tokens. Alone (`--part models --seconds 250`) it has time for all of them on an H100, by an estimate of 210 s.
4. `short`: where the GPU waits for the host, short_gpu.py.
5. `default`: the default model, where `--model` and `--text` name it and a text: perplexity of a text of its full
   context, prefill, decode, `analyze`, steps of training, and 512 generated tokens.
6. `profile`: kernels of one layer and of one model by time.

A part that fails is written down with its error, and the next one runs; `--part` shares the time among the parts named.
FOLDER gets gpu.json and gpu.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import attention_gpu, gpu_default_model, gpu_models, short_gpu
from benchmarks.layer_gpu import SHAPES, Bench, random_layer
from focus_runtime.errors import first_line

ROOT = Path(__file__).parents[1]
OTHERS_UP_TO = 262144  # tokens: the longest of a layer's second and third shape
SMOKE_TABLE = [160, 192]
GPU_TESTS = (
    "tests/runtime/attention/cuda/test_on_gpu.py",
    "tests/runtime/attention/cuda/test_triton_kernels.py",
    "tests/runtime/composition/test_by_head.py",
    "tests/runtime/composition/test_gpu_text.py",
)
SHARES = {
    "tests": 0.2,
    "layer": 0.25,
    "models": 0.25,
    "short": 0.1,
    "default": 0.15,
    "profile": 0.05,
}  # of the time, with what the parts before left over


@dataclass(slots=True)
class Report:
    """Results so far, written after every addition.

    Attributes:
        folder: gets gpu.json and gpu.md.
        seconds: for everything.
        smoke: on the CPU, with small shapes.
        model, text: the default model's name, GGUF file or folder, and a text; None where they are not at hand.
        lengths: tokens of whole models, ascending.
        parts: in the order in which they run.
        results: by part.
        start: `time.perf_counter()` at the beginning.
    """

    folder: Path
    seconds: float
    smoke: bool
    model: str | None = None
    text: Path | None = None
    lengths: tuple[int, ...] = gpu_models.LENGTHS
    parts: tuple[str, ...] = tuple(SHARES)
    results: dict[str, Any] = field(default_factory=dict)
    start: float = field(default_factory=time.perf_counter)

    @property
    def device(self) -> torch.device:
        """Where the models run."""
        return torch.device("cpu" if self.smoke else "cuda")

    def left(self, part: str) -> float:
        """Seconds until a part must have ended."""
        until = self.parts[: self.parts.index(part) + 1]
        share = sum(SHARES[each] for each in until) / sum(SHARES[each] for each in self.parts)
        return self.seconds * share - (time.perf_counter() - self.start)

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
    """Last lines of `pytest -m gpu`: those that compare times by themselves, the others side by side."""
    if importlib.util.find_spec("pytest") is None:
        return {"skipped": "pytest is not installed"}
    command = [sys.executable, "-m", "pytest", "-q", *GPU_TESTS, "-p", "no:cacheprovider", "--tb=line"]
    together = ["-n", "12"] if importlib.util.find_spec("xdist") is not None else []
    statuses: list[int] = []
    tail: list[str] = []
    for chosen in (["-m", "gpu and not alone", *together], ["-m", "gpu and alone"]):
        try:
            done = subprocess.run(
                [*command, *chosen],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=max(1.0, report.left("tests")),
            )
        except subprocess.TimeoutExpired as expired:
            lines = (expired.stdout or b"").decode(errors="replace").splitlines()
            return {"error": "out of time", "tail": tail + lines[-15:]}
        statuses.append(done.returncode)
        tail += done.stdout.splitlines()[-40:]
    return {"status": max(statuses), "tail": tail}


def layer_table(report: Report) -> dict[str, Any]:
    """attention_gpu.py, in its share of the time."""
    bench = Bench(report.device, seed=1, deadline=time.perf_counter() + report.left("layer"))
    lengths = SMOKE_TABLE if report.smoke else list(attention_gpu.LENGTHS)
    shapes = SHAPES[:1] if report.smoke else SHAPES

    def progress(result: dict[str, Any]) -> None:
        report.results["layer"] = result
        report.write()

    return attention_gpu.run(bench, lengths, shapes, progress, OTHERS_UP_TO)


def whole_models(report: Report) -> dict[str, list[dict[str, Any]]]:
    """Prefill and decode by model and length, until the time is used up or the memory runs out.

    A model has its share of the time by what it costs, and what the models before left over.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    report.results["models"] = rows
    models = gpu_models.SMOKE_MODELS if report.smoke else gpu_models.MODELS
    lengths = gpu_models.SMOKE_LENGTHS if report.smoke else report.lengths
    longest = gpu_models.SMOKE_LENGTHS[-1] if report.smoke else gpu_models.LENGTHS[-1]
    names = list(models)
    for number, name in enumerate(names):
        share = gpu_models.COSTS[name] / sum(gpu_models.COSTS[later] for later in names[number:])
        deadline = time.perf_counter() + share * report.left("models")
        rows[name] = []
        for _ in gpu_models.model_rows(models[name], lengths, longest, report.device, deadline, rows[name]):
            report.write()
    return rows


def short_texts(report: Report) -> dict[str, Any]:
    """short_gpu.py, as many of its parts as begin in their share of the time."""
    if report.smoke:
        return {"skipped": "no GPU"}
    found: dict[str, Any] = {}
    report.results["short"] = found
    with torch.no_grad():
        for part, work in short_gpu.PARTS.items():
            left = report.left("short")
            if left <= 0:
                found[part] = {"skipped": "no time was left"}
                continue
            found[part] = work(Bench(report.device, seed=1, deadline=time.perf_counter() + left))
            report.write()
    return found


def default_model(report: Report) -> dict[str, Any]:
    """The default model, where it and a text are at hand."""
    if report.model is None or report.text is None:
        return {"skipped": "no --model and --text given"}

    def noted(found: dict[str, Any]) -> None:
        report.results["default"] = found
        report.write()

    text = report.text.read_text(encoding="utf-8")
    return gpu_default_model.measure(report.model, text, report.device, noted)


def profiles(report: Report) -> dict[str, Any]:
    """Kernels by time, and the host's time, of one layer at two lengths and of the first model."""
    if report.smoke:
        return {"skipped": "no GPU"}
    bench = Bench(report.device, seed=1, deadline=time.perf_counter() + 60)
    found: dict[str, Any] = {}
    with torch.no_grad():
        for length in (4096, 65536):
            layer = random_layer(bench, SHAPES[0], length)
            found[f"layer {length}"] = profiled(attention_gpu.focus_way(layer, 8, 1, attention_gpu.SINKS))
    name, config = next(iter(gpu_models.MODELS.items()))
    shortest = gpu_models.LENGTHS[0]
    with gpu_models.random_model(config, shortest, report.device) as focus, torch.no_grad():
        ids = gpu_models.random_ids(shortest, report.device)
        found[f"{name} {shortest}"] = profiled(lambda: focus.model(input_ids=ids, use_cache=False, logits_to_keep=1))
    return found


def profiled(work: Callable[[], Any]) -> dict[str, Any]:
    """One call after three: microseconds on the device by kernel, largest first, and from first to last on the host."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        before = time.perf_counter()
        work()
        host = time.perf_counter() - before
        torch.cuda.synchronize()
    kernels = [event for event in recorded.key_averages() if event.self_device_time_total > 0]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    return {
        "host_us": host * 1e6,
        "device_us": sum(event.self_device_time_total for event in kernels),
        "kernels": [[event.key[:90], event.count, event.self_device_time_total] for event in kernels[:15]],
    }


def as_markdown(results: dict[str, Any]) -> str:
    """The results as tables, failures included."""
    machine = results.get("layer", {}).get("machine", {})
    lines = [f"# {machine.get('gpu', 'No GPU: smoke run')}", "", f"`{json.dumps(machine)}`", ""]
    tests = results.get("tests", {})
    lines += ["## Tests", "", *(f"    {line}" for line in tests.get("tail", [])[-3:] or [json.dumps(tests)]), ""]
    lines += ["## One layer, bf16, w = 128: full attention / routing and Focus", ""]
    layer = results.get("layer", {})
    for shape in dict.fromkeys(row["shape"] for row in layer.get("rows", [])):
        lines += [f"### {shape}", "", *_layer_table([row for row in layer["rows"] if row["shape"] == shape]), ""]
    if "rows" not in layer:
        lines.append(json.dumps(layer))
    for name, rows in results.get("models", {}).items() if "error" not in results.get("models", {}) else ():
        lines += ["", f"## {name}, random weights: full attention / Focus", ""]
        lines += ["| tokens | prefill | prefill ms | decode | decode ms | peak GB full, Focus |", "|---|" + "---|" * 5]
        lines += [_model_row(row) for row in rows]
    if "error" in results.get("models", {}):
        lines += ["", "## Whole models", "", results["models"]["error"]]
    for part in ("short", "default", "profile"):
        lines += ["", f"## {part}", "", "```json", json.dumps(results.get(part, {}), indent=1), "```", ""]
    return "\n".join(lines)


def _layer_table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of the table of one shape: each kernel of full attention has a column, launched and as a graph."""
    names = next((list(row["full_ms"]) for row in rows if "full_ms" in row), [])
    head = ["tokens", "K", "k", "sinks", "Focus ms", *(f"{name} ms" for name in names)]
    head += [*(f"{name} / Focus" for name in names), "as graphs", "1 / pairs kept", "MB", "paper"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        if "skipped" in row:
            lines.append(f"| {row['tokens']:,} | {row['skipped']} |" + " |" * (len(head) - 2))
        for case in row.get("focus", []):
            graphs = ", ".join(f"{ratio:.2f}" for ratio in case["graph_full_over_focus"].values())
            cells = [f"{row['tokens']:,}", case["K"], case["k"], case["sinks"], f"{case['ms']['median']:.3f}"]
            cells += [f"{row['full_ms'][name]['median']:.3f}" for name in names]
            cells += [f"{case['full_over_focus'][name]:.2f}" for name in names]
            memory = f"{case['ms']['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in case["ms"] else ""
            cells += [graphs, f"{1 / case['pairs_kept']:.2f}", memory, case["paper"] or ""]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _model_row(row: dict[str, Any]) -> str:
    if "skipped" in row or "prefill" not in row or "decode" not in row:
        return f"| {row['tokens']:,} | {row.get('skipped', 'not finished')} | | | | |"
    cells = [f"{row['tokens']:,}"]
    for part in (row["prefill"], row["decode"]):
        failed = part.get("error")
        cells.append(failed or f"{part['full_over_focus']:.2f}")
        cells.append("" if failed else f"{part['full_ms']['median']:.1f}, {part['focus_ms']['median']:.1f}")
    peaks = row["prefill"].get("peak_bytes", {})
    known = [peaks.get(mode) for mode in ("full", "focus")]
    caches = f" (cache {row['prefill']['cache_bytes'] / 1e9:.2f})" if row["prefill"].get("cached") else ""
    cells.append(", ".join("" if value is None else f"{value / 1e9:.2f}" for value in known) + caches)
    return "| " + " | ".join(cells) + " |"


def main(arguments: list[str] | None = None) -> None:
    """All parts in order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu.json and gpu.md")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: smoke run, no measurement")
    parser.add_argument("--seconds", type=float, default=540.0, help="time for everything")
    parser.add_argument("--model", help="the default model: smollm2-135m, or its GGUF file or folder")
    parser.add_argument("--text", type=Path, help=f"a text of {gpu_default_model.CONTEXT} tokens or more")
    parser.add_argument("--lengths", default=",".join(map(str, gpu_models.LENGTHS)), help="tokens of whole models")
    parser.add_argument("--part", choices=tuple(SHARES), action="append", help="only these")
    chosen = parser.parse_args(arguments)
    # Caches are made a layer at a time, out of what the layer before has freed: pieces that fit nothing else remain.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA GPU found; use --device cpu for a smoke run of the script")
    parts: dict[str, Callable[[Report], Any]] = {
        "tests": gpu_tests,
        "layer": layer_table,
        "models": whole_models,
        "short": short_texts,
        "default": default_model,
        "profile": profiles,
    }
    report = Report(
        chosen.out,
        chosen.seconds,
        chosen.device == "cpu",
        chosen.model,
        chosen.text,
        lengths=tuple(sorted(int(length) for length in chosen.lengths.split(","))),
        parts=tuple(chosen.part or parts),
    )
    for name in report.parts:
        report.add(name, partial(parts[name], report))
    print((chosen.out / "gpu.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
