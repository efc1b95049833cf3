"""The tables of docs/gpu.md and of the README from a result of gpu.py, in Markdown.

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
FULL = ("torch flash", "torch cudnn")
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


def main() -> None:
    """Print them."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULT
    print("\n\n".join(tables(json.loads(path.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
