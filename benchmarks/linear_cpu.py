"""Whole passes and decode steps of a float32 model with torch's linear layers and with oneDNN's, timed in one run.

They take turns, and full attention and Focus too, so that a drift of the machine's speed hits all; the same process,
model and text.

    python benchmarks/linear_cpu.py TEXT.txt --out benchmarks/results/amd-zen5/linear_cpu.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache

from focus_runtime.composition.attach import FocusModel, compose
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


def medians(
    model: nn.Module, works: Mapping[str, Callable[[], Any]], repeats: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Median seconds of each work with torch's layers and with oneDNN's, all in turns, and the ratio of the two."""
    layers = [module for module in model.modules() if isinstance(module, OneDnnLinear)]
    kinds: dict[str, Any] = {"torch": nn.Linear, "onednn": OneDnnLinear}
    seconds: dict[tuple[str, str], list[float]] = {(work, kind): [] for work in works for kind in kinds}
    for repeat in range(repeats + 1):
        for (work, kind), taken in seconds.items():
            for layer in layers:
                layer.__class__ = kinds[kind]
            taken.append(seconds_of(works[work]))
            if repeat == 0:
                taken.clear()  # the first of each prepares
    for work in works:
        made = {kind: statistics.median(seconds[work, kind]) for kind in kinds}
        yield work, made | {"times_as_fast": made["torch"] / made["onednn"]}


def both_ways(focus: FocusModel, work: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """A work with full attention and with Focus."""

    def full() -> None:
        with focus.full_attention():
            work()

    return {"full": full, "focus": work}


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
    focus = compose(model, load_centroids("default"))
    passes = {tokens: partial(model.base_model, input_ids=ids[:, :tokens]) for tokens in given.tokens}
    measured: list[tuple[str, int, Callable[[], Any]]] = [
        *(("pass", tokens, work) for tokens, work in passes.items()),
        ("decode", DECODE_STEPS, decode),
    ]
    with torch.no_grad():
        for what, tokens, work in measured:
            for attention, row in medians(model, both_ways(focus, work), given.repeats):
                rows.append({"attention": attention, "what": what, "tokens": tokens, **row})
                print(rows[-1])
    focus.detach()
    hidden = torch.randn(given.tokens[0], model.config.hidden_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        works = {"none": lambda: model.get_output_embeddings()(hidden)}
        for attention, row in medians(model, works, given.repeats):
            rows.append({"attention": attention, "what": "vocabulary", "tokens": given.tokens[0], **row})
            print(rows[-1])
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
