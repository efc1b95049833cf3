"""The part of gpu.py that times whole models of random weights: prefill and decode by length, with their memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MistralConfig

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import first_line
from focus_runtime.failures import is_out_of_memory
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.measure.speed.model import Filled, decode_speed, prefill_speed, single_prefill_speed
from focus_runtime.measure.timing import MODES
from focus_runtime.routing.centroids import random_centroids
from tests.helpers import TINY

VOCABULARY, DECODE_STEPS, CALIBRATION_TOKENS = 32000, 16, 2048
MODELS: dict[str, Callable[..., Any]] = {
    "Llama 3.2 1B": partial(
        LlamaConfig,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
    ),
    "Mistral 7B": partial(
        MistralConfig,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        sliding_window=None,
    ),
    "Gemma 2 9B": partial(
        Gemma2Config,
        hidden_size=3584,
        intermediate_size=14336,
        num_hidden_layers=42,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=256,
    ),
}
COSTS = {"Llama 3.2 1B": 50, "Mistral 7B": 90, "Gemma 2 9B": 110, "tiny": 1}  # of all lengths, about seconds on an H100
LENGTHS = (8192, 32768, 131072)
REPEATS = 2  # timed passes of each mode at a length
PASSES, PASSES_SINGLE = 3 + 2 * REPEATS, 1  # of each mode on a GPU: `prefill_speed` and the one before decode steps
GROWTH, GROWTH_LONG = 1.3, 1.6  # a pass's time by its length, to this power, and to this one where it gets longer than:
LONG = 32768  # tokens
SMOKE_MODELS: dict[str, Callable[..., Any]] = {"tiny": partial(LlamaConfig, **TINY)}
SMOKE_LENGTHS = (192, 256)
FOCUS = FocusConfig(num_groups=8, top_k=1, window=128, num_sinks=4)


@contextmanager
def random_model(config: Callable[..., Any], longest: int, device: torch.device) -> Iterator[FocusModel]:
    """A model of random weights in bf16 with random, balanced centroids, once the memory of the last one is free."""
    free_memory(device)
    torch.manual_seed(0)
    settings = config(vocab_size=VOCABULARY, max_position_embeddings=longest + 2 * DECODE_STEPS)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16).eval()
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


def free_memory(device: torch.device) -> None:
    """Give back what nothing refers to any more; a model's modules refer to each other."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def random_ids(length: int, device: torch.device) -> torch.Tensor:
    """(1, T) token ids."""
    return torch.randint(3, VOCABULARY, (1, length), generator=torch.Generator().manual_seed(0)).to(device)


def model_rows(
    config: Callable[..., Any],
    lengths: Sequence[int],
    longest: int,
    device: torch.device,
    deadline: float,
    rows: list[dict[str, Any]],
) -> Iterator[None]:
    """Add a row of one model for every length; those that would end after the deadline say that they were skipped.

    Lengths from `longest` on take `single_prefill_speed` once a shorter one has compiled the kernels; see there for
    what is not warmed up. All others are warmed up and take the median of `REPEATS` passes.

    Args:
        config: makes the model's configuration.
        lengths: tokens, ascending.
        longest: tokens.
        device: where the model runs.
        deadline: of `time.perf_counter()`.
        rows: gets them.

    Yields:
        Whenever something is new in the rows.
    """
    measured: dict[str, Any] | None = None
    with random_model(config, max(lengths), device) as focus:
        for length in lengths:
            single = measured is not None and length >= longest
            needed = 0.0 if measured is None else row_seconds(measured, length, PASSES_SINGLE if single else PASSES)
            left = max(0.0, deadline - time.perf_counter())
            if left <= needed:
                about = f", about {needed:.0f} s needed" if needed else ""
                rows.append({"tokens": length, "skipped": f"{left:.0f} s were left{about}"})
                continue
            row: dict[str, Any] = {"tokens": length}
            rows.append(row)
            for _ in one_length(focus, length, device, row, single=single):
                yield
            if "error" not in row["prefill"]:
                measured = row


def row_seconds(measured: dict[str, Any], length: int, passes: int) -> float:
    """About how long another length takes, by a row of a shorter one.

    Args:
        measured: with its prefill.
        length: tokens.
        passes: of each mode over the text. The steps of decode are counted as long as after the shorter text.
    """
    growth = GROWTH_LONG if length > LONG else GROWTH
    prefill = _both_seconds(measured["prefill"]) * (length / measured["tokens"]) ** growth
    return passes * prefill + 2 * (DECODE_STEPS + 1) * _both_seconds(measured["decode"])


def _both_seconds(part: dict[str, Any]) -> float:
    """What a pass or a step of each mode takes together, without the kernels' compilation; 0 where it failed."""
    return sum(part.get(f"{mode}_ms", {}).get("median", 0.0) for mode in MODES) / 1000


def one_length(
    focus: FocusModel, length: int, device: torch.device, row: dict[str, Any], *, single: bool
) -> Iterator[str]:
    """Put prefill and decode of one model at one length into a row; what fails is a result.

    Args:
        focus: a composed model.
        length: tokens.
        device: where it runs.
        row: gets both.
        single: one pass of each mode, which fills the caches that decode continues; where both caches are too much,
            passes without any, and no decode.
    """
    ids = random_ids(length, device)
    filled: dict[str, Filled] = {}

    def prefill() -> dict[str, Any]:
        if not single:
            return prefill_speed(focus, ids, repeats=REPEATS)
        try:
            found, caches = single_prefill_speed(focus, ids, steps=DECODE_STEPS)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            why = first_line(error)
        else:
            filled.update(caches)
            return found
        free_memory(device)  # beyond the `except`, whose error keeps what the pass had made
        return prefill_speed(focus, ids, repeats=1) | {"cached_error": why}

    def decode() -> dict[str, Any]:
        if single and not filled:
            return {"error": "no cache was filled"}
        return decode_speed(focus, ids, steps=DECODE_STEPS, filled=filled or None)

    for name, work in (("prefill", prefill), ("decode", decode)):
        try:
            row[name] = work()
        except Exception as error:  # as in `Report.add`, and rows of other models are kept
            row[name] = {"error": f"{type(error).__name__}: {first_line(error)}"}
        free_memory(device)
        yield name
