"""Where a GPU waits for the host: one layer at short lengths, heads with full attention, and a small model.

1. `layer`: full attention, Focus by groups and Focus by testing every pair, launched from Python and as CUDA graphs.
2. `apart`: three of twelve heads with full attention, in the kernel that the others use and by torch's own.
3. `model`: random weights in the shape of SmolLM2-135M with the `default` centroids: prefill by length, full attention
   and Focus in turn; a decode step of full attention by every kernel of torch and without cuDNN's, and of Focus.
4. `host`: the same model's prefill until the host has handed it over, with and without Focus's launches, and what the
   host takes for the smallest of things: room for a result, a view, a launch.

    python -m benchmarks.short_gpu --out benchmarks/results/nvidia-h100/short.json [--part layer]
    python -m benchmarks.short_gpu --device cpu --part model     # smoke run of the script, measures no GPU
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

from benchmarks.attention_gpu import LENGTHS, focus_way, full_ways, machine
from benchmarks.gpu_default_model import GENERATED, default_centroids, generation
from benchmarks.layer_gpu import SHAPES, Bench, Layer, Work, captured, chosen, interleaved, random_layer, spread
from focus_runtime.attention.cuda.grouped import Heads, grouped_attention, new_results
from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.gpu import Launches
from focus_runtime.mask.rule import Extent, PairRule
from focus_runtime.measure.timing import MODES, attending, milliseconds, synchronise
from focus_runtime.models.structure import cache_argument

SHORT = (256, 512, *(length for length in LENGTHS if length <= 4096))
FULL_HEADS = (0, 3, 6)
FULL_LENGTHS = (2048, 4096, 8192, 16384, 32768)
PREFILLS = (512, 1024, 2048, 4096, 8192)
PAST, STEPS, REPEATS = 4096, 20, 9
PROMPT = 7680
HANDED, CALLS = 512, 200  # tokens, and calls of small things
SMALL: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 16384,
    "tie_word_embeddings": True,
}


def with_work(most: float, work: Work) -> Work:
    """The same with every pair tested up to so much work, see `pairwise_pays`."""
    from focus_runtime.attention.cuda import pairwise

    def run() -> Any:
        before, pairwise.MOST_WORK = pairwise.MOST_WORK, {1: most, 2: most}
        try:
            return work()
        finally:
            pairwise.MOST_WORK = before

    return run


def short_layers(bench: Bench) -> dict[str, Any]:
    """Microseconds by shape, length and way."""
    found: dict[str, Any] = {}
    for shape in (SHAPES[0], SHAPES[2]):
        for length in SHORT:
            layer = random_layer(bench, shape, length)
            turns = dict(full_ways(bench, layer))
            for top_k in (1, 2):
                way = focus_way(layer, 8, top_k, 4)
                turns[f"by groups, k = {top_k}"] = with_work(0, way)
                turns[f"every pair, k = {top_k}"] = with_work(float("inf"), way)
            launched = interleaved(bench, turns, 0.25, warm_up=True)
            graphs = interleaved(bench, {n: captured(n, w) for n, w in turns.items()}, 0.1, warm_up=True)
            found[f"{shape.name}, {length}"] = {n: {"ms": launched[n], "graph_ms": graphs[n]} for n in turns}
    return found


def full_heads(bench: Bench) -> dict[str, Any]:
    """Milliseconds by length of some heads of twelve with full attention."""
    found = {}
    for length in FULL_LENGTHS:
        layer = random_layer(bench, SHAPES[0], length)
        turns = {"with the others": _near(bench, layer), "torch flash": _own(layer), "torch cudnn": _own(layer)}
        found[f"{length}"] = interleaved(bench, turns, 0.1, warm_up=True)
    return found


def _near(bench: Bench, layer: Layer) -> Work:
    numbers = torch.tensor(FULL_HEADS, dtype=torch.int32, device=bench.device)
    endless = torch.full((layer.query.shape[1],), (1 << 31) - 1, dtype=torch.int32, device=bench.device)
    membership, extent = layer.membership(8, 1), Extent(8, 1, uniform=True)

    def run() -> None:
        settings: dict[str, Any] = {"heads": Heads(numbers, endless), "results": new_results(layer.query)}
        grouped_attention(*layer.tensors, membership, PairRule(0, 4), layer.scoring, extent=extent, **settings)

    return run


def _own(layer: Layer) -> Work:
    some = slice(FULL_HEADS[0], FULL_HEADS[-1] + 1, FULL_HEADS[1] - FULL_HEADS[0])

    def run() -> None:
        out, scale = new_results(layer.query)[0], layer.scoring.scale
        query, key, value = (x[:, some] for x in layer.tensors)
        result = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
        out[:, :, some] = result.transpose(1, 2)

    return run


@contextmanager
def small(bench: Bench) -> Iterator[tuple[FocusModel, torch.Tensor]]:
    """Random weights in the shape of the default model, its centroids composed, and (1, T) random ids."""
    torch.manual_seed(0)
    with torch.device(bench.device):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL), dtype=torch.bfloat16).eval()
    drawn = torch.randint(3, SMALL["vocab_size"], (1, PREFILLS[-1]), generator=torch.Generator().manual_seed(0))
    focus = compose(model, default_centroids(bench.device))
    focus.reset_seconds(timed=False)  # events about stages would take the host longer
    try:
        yield focus, drawn.to(bench.device)
    finally:
        focus.detach()


def small_model(bench: Bench) -> dict[str, Any]:
    """Milliseconds of a model that computes little in many layers; everything in turn."""
    found: dict[str, Any] = {"past": PAST if bench.on_gpu else 64}
    with small(bench) as (focus, ids):
        for name, spent in _decode_times(focus, ids, found["past"], bench.device).items():
            found[f"decode, {name}"] = spread(spent)
        for length in PREFILLS if bench.on_gpu else (64,):
            times: dict[str, list[float]] = {mode: [] for mode in MODES}
            for repeat in range(REPEATS + 2):
                for mode in MODES:
                    with attending(focus, mode):
                        once = milliseconds(_pass(focus.model, ids[:, :length]), bench.device)
                    if repeat > 1:
                        times[mode].append(once)
            found[f"prefill {length}"] = {mode: spread(values) for mode, values in times.items()}
    return found


def _decode_times(focus: FocusModel, ids: torch.Tensor, past: int, device: torch.device) -> dict[str, list[float]]:
    """Milliseconds of steps after `past` tokens, by way, each way with a cache of its own."""
    model: Any = focus.model
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "transformers' own": lambda: _own_attention(focus, cudnn=True),
        "transformers' own without cuDNN's kernel": lambda: _own_attention(focus, cudnn=False),
        **{mode: partial(attending, focus, mode) for mode in MODES},
    }
    caches = {name: DynamicCache(config=model.config) for name in ways}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for name, way in ways.items():
        with way():
            model(input_ids=ids[:, :past], **cache_argument(model, caches[name]), use_cache=True, logits_to_keep=1)
    for place in range(past, past + STEPS + 3):
        for name, way in ways.items():

            def one(place: int = place, name: str = name) -> Any:
                newest, cache = ids[:, place : place + 1], cache_argument(model, caches[name])
                return model(input_ids=newest, **cache, use_cache=True, logits_to_keep=1)

            with way():
                times[name].append(milliseconds(one, device))
    return {name: values[3:] for name, values in times.items()}


@contextmanager
def _own_attention(focus: FocusModel, *, cudnn: bool) -> Iterator[None]:
    """The model as it is without Focus, cuDNN's kernel allowed or not."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with focus.full_attention():
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        try:
            yield
        finally:
            torch.backends.cuda.enable_cudnn_sdp(before)


def host_times(bench: Bench) -> dict[str, Any]:
    """Microseconds of the host alone: a layer of a prefill, and a call of each small thing."""
    found: dict[str, Any] = {"tokens": HANDED if bench.on_gpu else 64}
    with small(bench) as (focus, ids):
        prefill, layers = _pass(focus.model, ids[:, : found["tokens"]]), len(focus.focused_layers)
        ways: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
            "full attention": ("full", nullcontext),
            "focus": ("focus", nullcontext),
            "focus, launches left out": ("focus", _without_launches),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for repeat in range(REPEATS + 2):
            for name, (mode, inside) in ways.items():
                with attending(focus, mode), inside():
                    once = _handed_over(prefill, bench)
                if repeat > 1:
                    times[name].append(once / layers)
        found["a layer"] = {name: spread(values) for name, values in times.items()}
    result = torch.empty(1, HANDED, 9, 64, dtype=bench.dtype, device=bench.device)
    small_things: dict[str, Work] = {
        "room for a result": lambda: torch.empty(1, HANDED, 9, 64, dtype=bench.dtype, device=bench.device),
        "a view": lambda: result.transpose(1, 2),
        "adding a number": lambda: result.add_(1),
    }
    if bench.on_gpu:
        layer = random_layer(bench, SHAPES[0], 256)
        small_things |= {f"{name}, one call": work for name, work in full_ways(bench, layer).items()}
        small_things["routing and focus, one call"] = focus_way(layer, 8, 1, 4)
    for name, work in small_things.items():
        with chosen(name.removesuffix(", one call")):
            found[name] = spread([_handed_over(work, bench) for _ in range(CALLS)][CALLS // 10 :])
    return found


def _handed_over(work: Work, bench: Bench) -> float:
    """Microseconds until a call returns, on a GPU that has nothing else to do."""
    bench.synchronise()
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


@contextmanager
def _without_launches() -> Iterator[None]:
    """Kernels that are ready are not run, so that what they would have computed is anything."""
    before, Launches.run = Launches.run, lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Launches.run = before  # type: ignore[method-assign]


def small_generation(bench: Bench) -> dict[str, Any]:
    """Seconds of 512 greedy tokens after a text that leaves room for them, full attention and Focus."""
    with small(bench) as (focus, ids):
        return generation(focus, ids[:, : PROMPT if bench.on_gpu else 64], GENERATED if bench.on_gpu else 8)


def _pass(model: Any, ids: torch.Tensor) -> Work:
    return lambda: model(input_ids=ids, use_cache=False, logits_to_keep=1)


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "model": small_model,
    "host": host_times,
    "generate": small_generation,
    "layer": short_layers,
    "apart": full_heads,
}


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    """The parts asked for; the file is written after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: smoke run of `model` alone")
    parser.add_argument("--part", choices=tuple(PARTS), action="append", help="only these")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA GPU found; use --device cpu --part model for a smoke run of the script")
    bench = Bench(torch.device(chosen.device), 1, time.perf_counter() + 600)
    result: dict[str, Any] = {"machine": machine(bench), "measures_a_gpu": bench.on_gpu}
    for part in chosen.part or PARTS:
        result[part] = PARTS[part](bench)
        synchronise(bench.device)
        print(part, json.dumps(result[part]), flush=True)
        if chosen.out is not None:
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            chosen.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
