"""The tables of docs/gpu.md and of the README from results of gpu.py and short_gpu.py, in Markdown.

python -m benchmarks.gpu_tables [benchmarks/results/nvidia-h200/gpu.json]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.attention_gpu import LENGTHS, SINKS
from benchmarks.layer_gpu import SHAPES

RESULT = Path(__file__).parent / "results" / "nvidia-h200" / "gpu.json"
SHORT = Path(__file__).parent / "results" / "nvidia-h100" / "short.json"
MODELS = Path(__file__).parent / "results" / "nvidia-h100" / "gpu.json"
FULL = ("torch flash", "torch cudnn")
MODES_ASKED = ("full", "focus")
GRAPHS_UP_TO = 16384
README_LENGTHS = (1024, 4096, 16384, 65536, 262144, 1048576)
Case = tuple[dict[str, Any], dict[str, Any]]


def case(layer: dict[str, Any], shape: str, tokens: int, groups: int, top_k: int) -> Case | None:
    """The row of a length and its setting; None where it was not measured."""
    for row in layer["rows"]:
        for found in row.get("focus", []):
            setting = (row["shape"], row["tokens"], found["K"], found["k"], found["sinks"])
            if setting == (shape, tokens, groups, top_k, SINKS):
                return row, found
    return None


def _lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))


def launched(layer: dict[str, Any], shape: str, groups: int) -> str:
    """Times and ratios by length, for k = 1 and 2."""
    head, rows = ["tokens", "full, ms: flash, cuDNN"], []
    for top_k in (1, 2):
        head += [f"K = {groups}, k = {top_k}: ms", "flash / Focus", "cuDNN / Focus", "of the limit"]
    for tokens in LENGTHS:
        cells: list[str] = []
        for top_k in (1, 2):
            found = case(layer, shape, tokens, groups, top_k)
            if found is None:
                continue
            row, own = found
            flash, cudnn = (own["full_over_focus"][name] for name in FULL)
            if not cells:
                cells = [f"{tokens:,}", ", ".join(_ms(row["full_ms"][name]["median"]) for name in FULL)]
            limit = f"{100 * flash * own['pairs_kept']:.0f} %"
            cells += [_ms(own["ms"]["median"]), f"{flash:.2f}", f"{cudnn:.2f}", limit]
        if cells:
            rows.append(cells)
    return _lines(head, rows)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}×" if ratio >= 1.05 else f"{ratio:.2f}×"  # what is slower is not rounded to equal


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_graphs(layer: dict[str, Any], shapes: tuple[str, str], groups: int) -> str:
    """Replays of two shapes by length: microseconds, and full over Focus for k = 1 and 2."""
    head, rows = ["tokens"], []
    for shape in shapes:
        head += [f"{shape}: flash, cuDNN, Focus, us", f"K = {groups}, k = 1", f"K = {groups}, k = 2"]
    for tokens in (length for length in LENGTHS if length <= GRAPHS_UP_TO):
        cells = [f"{tokens:,}"]
        for shape in shapes:
            both = [case(layer, shape, tokens, groups, top_k) for top_k in (1, 2)]
            assert both[0] is not None
            row, own = both[0]
            times = (*(row["full_graph_ms"][name] for name in FULL), own["graph_ms"])
            cells.append(", ".join(f"{1000 * each['median']:,.0f}" for each in times))
            cells += [
                ", ".join(f"{ratio:.2f}" for ratio in one[1]["graph_full_over_focus"].values()) for one in both if one
            ]
        rows.append(cells)
    return _lines(head, rows)


def beside_the_paper(layer: dict[str, Any]) -> str:
    """Table 6, and flash over Focus of the first shape."""
    rows = []
    for groups in (4, 8):
        reported = layer["paper"]["full_over_focus"][str(groups)]
        rows.append([f"paper, K = {groups}", *(str(reported.get(str(tokens), "")) for tokens in LENGTHS)])
        for top_k in (1, 2):
            found = [case(layer, SHAPES[0].name, tokens, groups, top_k) for tokens in LENGTHS]
            ratios = ["" if one is None else f"{one[1]['full_over_focus'][FULL[0]]:.2f}" for one in found]
            rows.append([f"here, K = {groups}, k = {top_k}", *ratios])
    return _lines(["", *(f"{tokens:,}" for tokens in LENGTHS)], rows)


def short_texts(result: dict[str, Any]) -> str:
    """One layer at short lengths by two ways, k = 1 and 2: launched from Python, and as CUDA graphs."""
    ways = (*FULL, *(f"{way}, k = {top_k}" for top_k in (1, 2) for way in ("by groups", "every pair")))
    rows = []
    for name, found in result["layer"].items():
        times = [(1000 * found[way]["ms"]["median"], 1000 * found[way]["graph_ms"]["median"]) for way in ways]
        shape, tokens = name.split(", ")
        rows.append([shape, f"{int(tokens):,}", *(f"{launched:.0f}, {graph:.0f}" for launched, graph in times)])
    names = ("flash", "cuDNN", *ways[2:])
    return _lines(["", "tokens", *(f"{name}: us, as a graph" for name in names)], rows)


def small_model(result: dict[str, Any]) -> str:
    """Prefill of a model that computes little in many layers."""
    rows = [
        [
            f"{int(name.split()[1]):,}",
            *(f"{found[mode]['median']:.1f} ({found[mode]['low']:.1f})" for mode in MODES_ASKED),
        ]
        for name, found in result["model"].items()
        if name.startswith("prefill")
    ]
    return _lines(["tokens", "full attention, ms (least)", "Focus, ms (least)"], rows)


def small_decode(result: dict[str, Any]) -> str:
    """Decode steps of the same model by way."""
    steps = {name.removeprefix("decode, "): found for name, found in result["model"].items() if "decode" in name}
    return _lines(
        ["decode step", "ms (least)"],
        [[name, f"{found['median']:.1f} ({found['low']:.1f})"] for name, found in steps.items()],
    )


def whole_models(result: dict[str, Any]) -> str:
    """Prefill of random weights in the shape of larger models, and decode where full attention had no plans to make.

    Lengths whose prefill was skipped or failed are left out.
    """
    rows = []
    for name, lengths in result["models"].items():
        for row in lengths:
            prefill, decode = row.get("prefill", {}), row.get("decode")
            if "full_ms" not in prefill:
                continue
            cells = [f"{name}", f"{row['tokens']:,}", *(_ms(prefill[f"{mode}_ms"]["median"]) for mode in MODES_ASKED)]
            cells += [_times(prefill["full_over_focus"]), _times(prefill["attention_full_over_focus"])]
            if decode is None or "error" in decode:
                cells += ["", ""]
            else:
                cells += [
                    ", ".join(_ms(decode[f"{mode}_ms"]["median"]) for mode in MODES_ASKED),
                    f"{decode['full_over_focus']:.2f}×",
                ]
            peaks = ", ".join(f"{prefill['peak_bytes'][mode] / 1e9:.1f}" for mode in MODES_ASKED)
            cache = f", {prefill['cache_bytes'] / 1e9:.1f} of it cache" if prefill.get("cached") else ""
            rows.append([*cells, peaks + cache])
    head = ["weights in the shape of", "tokens", "prefill, ms: full", "Focus", "ratio", "attention with routing"]
    return _lines([*head, "decode step, ms: full, Focus", "ratio", "peak GB: full, Focus"], rows)


def for_the_readme(layer: dict[str, Any]) -> str:
    """Flash and cuDNN over Focus, K = 8, k = 1, and the paper's figures."""
    reported, rows = layer["paper"]["full_over_focus"]["8"], []
    for shape in (SHAPES[0].name, SHAPES[2].name):
        found = [case(layer, shape, tokens, 8, 1) for tokens in README_LENGTHS]
        for name, label in zip(FULL, ("FlashAttention 2", "cuDNN"), strict=True):
            ratios = ["" if one is None else _times(one[1]["full_over_focus"][name]) for one in found]
            rows.append([f"{shape}, over {label}", *ratios])
    rows.append(["reported in the paper (H100, k not stated)", *(f"{reported[str(n)]}×" for n in README_LENGTHS)])
    return _lines(["K = 8, k = 1, bf16, routing counted", *(f"{tokens:,}" for tokens in README_LENGTHS)], rows)


def tables(result: dict[str, Any]) -> list[str]:
    """All of docs/gpu.md, in order, and the README's."""
    layer = result["layer"]
    first, second, third = (shape.name for shape in SHAPES)
    return [
        launched(layer, first, 8),
        launched(layer, first, 4),
        launched(layer, second, 8),
        launched(layer, third, 8),
        as_graphs(layer, (first, third), 8),
        beside_the_paper(layer),
        for_the_readme(layer),
    ]


def tables_of_short() -> list[str]:
    """Those of what a host limits, and of whole models."""
    short, whole = (json.loads(path.read_text(encoding="utf-8")) for path in (SHORT, MODELS))
    return [short_texts(short), small_model(short), small_decode(short), whole_models(whole)]


def main() -> None:
    """Print them."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULT
    print("\n\n".join([*tables(json.loads(path.read_text(encoding="utf-8"))), *tables_of_short()]))


if __name__ == "__main__":
    main()
