"""Whole passes and decode steps of a float32 model with torch's linear layers and with oneDNN's, timed in one run.

They take turns, so that a drift of the machine's speed hits both; the same process, model, text and attention.

    python benchmarks/linear_cpu.py TEXT.txt --out benchmarks/results/amd-zen5/linear_cpu.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache

from focus_runtime.composition.attach import compose
from focus_runtime.measure.timing import machine
from focus_runtime.models.embedded import EMBEDDED
from focus_runtime.models.linear import OneDnnLinear, linear_layers, onednn_is_faster
from focus_runtime.models.loading import load_model
from focus_runtime.models.structure import cache_argument
from focus_runtime.routing.centroid_file import load_centroids

DECODE_AFTER, DECODE_STEPS = 64, 20


def seconds_of(work: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def medians(model: nn.Module, work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Median seconds with torch's layers and with oneDNN's, in turns, and their ratio."""
    layers = [module for module in model.modules() if isinstance(module, OneDnnLinear)]
    kinds: dict[str, Any] = {"torch": nn.Linear, "onednn": OneDnnLinear}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for repeat in range(repeats + 1):
        for name, taken in seconds.items():
            for layer in layers:
                layer.__class__ = kinds[name]
            taken.append(seconds_of(work))
            if repeat == 0:
                taken.clear()  # the first of each prepares
    made = {name: statistics.median(taken) for name, taken in seconds.items()}
    return made | {"times_as_fast": made["torch"] / made["onednn"]}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    model, tokenizer = load_model(given.model)
    if not linear_layers(model):
        parser.error("on this processor torch's layers are as fast, so that oneDNN's are not taken")
    ids = tokenizer(given.text.read_text(encoding="utf-8"), return_tensors="pt", verbose=False).input_ids

    def decode() -> None:
        given = cache_argument(model, DynamicCache())
        model(input_ids=ids[:, :DECODE_AFTER], **given)
        for at in range(DECODE_AFTER, DECODE_AFTER + DECODE_STEPS):
            model(input_ids=ids[:, at : at + 1], **given)

    result: dict[str, Any] = {"machine": machine(), "model": given.model, "onednn_is_faster": onednn_is_faster()}
    rows = result["rows"] = []
    for attention in ("full", "focus"):
        focus = compose(model, load_centroids("default")) if attention == "focus" else None
        with torch.no_grad():
            for tokens in given.tokens:
                row = medians(model, partial(model.base_model, input_ids=ids[:, :tokens]), given.repeats)
                rows.append({"attention": attention, "what": "pass", "tokens": tokens, **row})
                print(rows[-1])
            rows.append(
                {"attention": attention, "what": "decode", "tokens": DECODE_STEPS}
                | medians(model, decode, given.repeats)
            )
            print(rows[-1])
        if focus is not None:
            focus.detach()
    hidden = torch.randn(given.tokens[0], model.config.hidden_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        row = medians(model, lambda: model.get_output_embeddings()(hidden), given.repeats)
    rows.append({"attention": "none", "what": "vocabulary", "tokens": given.tokens[0], **row})
    print(rows[-1])
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
