"""One attention layer on the CPU: exact Focus and full attention with torch's flash kernel, in one run.

Rows: balanced random groups at every length, with the fused kernel and without a compiler; several groups a token; the
memberships that the shipped default centroids give a text; error against float64; the fused kernel's own full
attention, so that what the kernel gains and what the sparsity gains can be told apart.

    python benchmarks/attention_cpu.py --out benchmarks/results/FAMILY/attention_cpu.json [--text FILE]
    python benchmarks/attention_cpu.py --several --out benchmarks/results/FAMILY/attention_cpu_several.json

The second command runs two groups a token by the fused kernel, and nothing else.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from focus_runtime.assets import asset_path
from focus_runtime.measure.loss import final_hidden
from focus_runtime.measure.speed.layer import LayerSetting, layer_error, layer_speed
from focus_runtime.measure.timing import machine
from focus_runtime.routing.centroid_file import load_centroids

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
SEVERAL: tuple[dict[str, Any], ...] = (
    {"num_groups": 4, "top_k": 2},
    {"num_groups": 8, "top_k": 2},
    {"num_groups": 16, "top_k": 2},
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {"num_groups": 8, "top_k": 1},
    {"num_groups": 8, "top_k": 1, "num_sinks": 4},
    {"num_groups": 8, "top_k": 1, "dtype": "bfloat16"},
    {"num_groups": 4, "top_k": 1},
    {"num_groups": 8, "top_k": 1, "backend": "decomposed"},
    {"num_groups": 16, "top_k": 2, "backend": "decomposed"},
    {"num_groups": 1, "top_k": 1, "backend": "fused"},  # every pair allowed: full attention by our kernel
    {"num_groups": 1, "top_k": 1, "backend": "fused", "dtype": "bfloat16"},
)
FEW_LENGTHS = 32768  # only the first and the bfloat16 setting continue to 65,536 tokens


def repeats_for(length: int) -> int:
    """More repeats where they are cheap."""
    return 15 if length <= 4096 else 7 if length <= 8192 else 5 if length <= 16384 else 3


def default_memberships(centroids: Any, text: str, lengths: tuple[int, ...]) -> dict[int, list[Tensor]]:
    """Groups that centroids give a text in layers 5, 15 and 25, at the lengths the text reaches."""
    from focus_runtime import compose, load_model

    model, tokenizer = load_model("smollm2-135m")
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    memberships = {}
    for length in lengths:
        if length > ids.shape[1]:
            continue
        focus = compose(model, centroids, top_k=1)
        try:
            with torch.no_grad():
                final_hidden(model, ids[:, :length])
            memberships[length] = [a.membership for layer, a in focus.assignments().items() if layer % 10 == 5]
        finally:
            focus.detach()
    return memberships


def main() -> None:
    """Run everything and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--text", type=Path, help="text for the default centroids (default: the sample texts)")
    parser.add_argument("--several", action="store_true", help="two groups a token instead")
    arguments = parser.parse_args()
    settings = SEVERAL if arguments.several else SETTINGS
    samples = [arguments.text] if arguments.text else sorted(asset_path("samples").glob("*.txt"))
    text = "\n\n".join(path.read_text(encoding="utf-8") for path in samples)
    lengths = tuple(length for length in LENGTHS if length <= arguments.longest)
    rows: list[dict[str, Any]] = []

    def add(setting: LayerSetting, length: int, **more: Any) -> None:
        own = setting.backend == "fused" and setting.num_groups > 1  # what sparsity alone gains
        row = layer_speed(setting, length, repeats=repeats_for(length), seed=length, same_kernel=own, **more)
        rows.append(row)
        print(
            f"{length:>6} tokens  K={setting.num_groups} k={setting.top_k} {setting.num_sinks} sinks {setting.dtype} "
            f"{row['backend']:<10} {row['groups']:<6} full {row['full_ms']['median']:>8.1f} ms  "
            f"{row['full_over_focus']:.2f}x, limit {row['limit']:.2f}x",
            flush=True,
        )

    for changes in settings:
        for length in lengths:
            if length <= FEW_LENGTHS or changes in (SETTINGS[0], SETTINGS[2]):
                add(LayerSetting(**changes), length)
    given = () if arguments.several else tuple(x for x in lengths if x <= 8192)
    centroids = load_centroids("default")
    for length, memberships in default_memberships(centroids, text, given).items():
        for membership in memberships:
            add(LayerSetting(num_groups=centroids.config.num_groups), length, membership=membership)
    errors = [{**changes, **layer_error(LayerSetting(**changes), 2048, seed=1)} for changes in settings]
    for row in errors:
        print(row)
    result = {"what": "one layer, 12 heads of 64, w=128", "machine": machine(), "speed": rows, "errors_at_2048": errors}
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
