"""Whole passes of the default model under budgets: time of attention and of the pass against the pairs kept.

Full attention and every budget take turns, so that a drift of the machine's speed hits all. Full heads run torch's own
kernel, which is slower than the fused one on some processors; `expected` is the attention time that the pairs would
cost at the two speeds measured in the same run, so that what grouping heads costs shows as a ratio above 1.

    python benchmarks/budget_cpu.py TEXT --out benchmarks/results/FAMILY/budget_cpu.json
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import Any

import torch

from focus_runtime import compose, load_centroids, load_model
from focus_runtime.measure.loss import layer_shares
from focus_runtime.measure.timing import machine, timed_pass, warm_up

LENGTHS = (1024, 2048, 4096, 8192)


def budgets(layers: int, heads: int) -> dict[str, list[dict[str, Any]]]:
    """Named budgets; which heads are full is drawn, since it does not matter for the time."""
    draw = random.Random(0)
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    some = draw.sample(every, len(every) // 5)
    return {
        "none": [],
        "a fifth of the heads in full": [{"layer": layer, "head": head, "full": True} for layer, head in some],
        "a fifth of the heads with top-k 2": [{"layer": layer, "head": head, "top_k": 2} for layer, head in some],
        "a third of the layers in full": [{"layer": layer, "full": True} for layer in range(0, layers, 3)],
    }


@torch.no_grad()
def measure(focus: Any, ids: torch.Tensor, repeats: int) -> list[dict[str, Any]]:
    """One row for each budget at one length."""
    usual = focus.config
    chosen = {name: usual.replace(budget=budget) for name, budget in budgets(30, 3).items()}
    attention: dict[str, list[float]] = {name: [] for name in ("full", *chosen)}
    whole: dict[str, list[float]] = {name: [] for name in ("full", *chosen)}
    kept: dict[str, float] = {"full": 1.0}
    warm_up(focus, ids)
    for repeat in range(repeats + 1):
        for name in attention:
            focus.config = chosen.get(name, usual)
            _, seconds = timed_pass(focus, ids, "full" if name == "full" else "focus")
            if name != "full":
                kept[name] = statistics.fmean(layer_shares(masks)[0] for masks in focus.head_masks().values())
            if repeat:
                whole[name].append(seconds * 1000)
                attention[name].append((focus.seconds.attention + focus.seconds.routing) * 1000)
    focus.config = usual
    ms = {name: statistics.median(times) for name, times in attention.items()}
    per_pair = (ms["full"] - ms["none"]) / (1 - kept["none"])
    return [
        {
            "tokens": ids.shape[1],
            "budget": name,
            "retained_pairs": kept[name],
            "attention_ms": ms[name],
            "whole_ms": statistics.median(whole[name]),
            "full_over_focus_attention": ms["full"] / ms[name],
            "full_over_focus_whole": statistics.median(whole["full"]) / statistics.median(whole[name]),
            "time_over_expected": ms[name] / (ms["none"] + per_pair * (kept[name] - kept["none"])),
        }
        for name in attention
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    arguments = parser.parse_args()
    model, tokenizer = load_model("smollm2-135m")
    ids = tokenizer(arguments.text.read_text(), return_tensors="pt", verbose=False)["input_ids"]
    focus = compose(model, load_centroids("default"), top_k=1, budget=())
    rows = []
    for length in LENGTHS:
        if length > min(arguments.longest, ids.shape[1]):
            continue
        for row in measure(focus, ids[:, :length], 5 if length <= 4096 else 3):
            rows.append(row)
            print(
                f"{row['tokens']:>6} {row['budget']:<34} {row['retained_pairs']:6.1%} pairs, attention "
                f"{row['attention_ms']:7.1f} ms, {row['full_over_focus_attention']:.2f}x, whole pass "
                f"{row['full_over_focus_whole']:.2f}x, over expected {row['time_over_expected']:.2f}",
                flush=True,
            )
    focus.detach()
    result = {"what": "smollm2-135m, default centroids, k = 1, w = 128, fp32", "machine": machine(), "rows": rows}
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
