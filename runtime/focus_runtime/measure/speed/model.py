"""A whole model timed: prefill and decode, full attention and Focus in turn."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from transformers import StaticCache

from focus_runtime.composition.attach import FocusModel
from focus_runtime.measure.loss import final_hidden
from focus_runtime.measure.timing import MODES, Spread, attending, peak_growth, timed_by_stage, timed_pass
from focus_runtime.models.structure import cache_argument


@torch.no_grad()
def prefill_speed(focus: FocusModel, ids: Tensor, *, repeats: int = 3) -> dict[str, Any]:
    """Time the whole model on one text, to the last hidden state: full attention (torch's) and Focus in turn.

    Args:
        focus: a composed model.
        ids: (1, T) on the model's device.
        repeats: timed passes of each, after one that warms up.

    Returns:
        JSON-ready: milliseconds and tokens per second of both, their ratio for the whole model and for attention with
        routing, milliseconds of every stage, peak memory growth.
    """
    model, device = focus.model, ids.device
    times: dict[str, list[float]] = {"full": [], "focus": []}
    stages: dict[str, dict[str, list[float]]] = {"full": {}, "focus": {}}
    for repeat in range(repeats + 1):
        for mode in MODES:
            _, elapsed = timed_pass(focus, ids, mode)
            if repeat == 0:  # warms up
                continue
            times[mode].append(elapsed * 1000)
            for name, seconds in focus.seconds.seconds.items():
                stages[mode].setdefault(name, []).append(seconds * 1000)
    median = {mode: statistics.median(values) for mode, values in times.items()}
    per_stage = {m: {n: statistics.median(v) for n, v in by_name.items()} for m, by_name in stages.items()}
    attention = per_stage["focus"]["attention"] + per_stage["focus"].get("routing", 0.0)
    with focus.measured_full_attention():
        full_growth = peak_growth(lambda: final_hidden(model, ids), device)
    return {
        "tokens": ids.shape[1],
        "full_ms": asdict(Spread.of(times["full"])),
        "focus_ms": asdict(Spread.of(times["focus"])),
        "full_tokens_per_second": ids.shape[1] / median["full"] * 1000,
        "focus_tokens_per_second": ids.shape[1] / median["focus"] * 1000,
        "full_over_focus": median["full"] / median["focus"],
        "attention_full_over_focus": per_stage["full"]["attention"] / attention,
        "stages_ms": per_stage,
        "backends": focus.backend_names.split(", "),
        "peak_bytes": {"full": full_growth, "focus": peak_growth(lambda: final_hidden(model, ids), device)},
    }


@torch.no_grad()
def decode_speed(focus: FocusModel, ids: Tensor, *, steps: int = 8) -> dict[str, Any]:
    """Time single decode steps after a text, full attention and Focus in turn, each with a static cache of its own.

    A static cache, because a growing one copies every past key and value at each step, with and without Focus.

    Args:
        focus: a composed model.
        ids: (1, T) of the text, on the model's device.
        steps: timed steps of each, after one that warms up.

    Returns:
        JSON-ready: milliseconds of a step and tokens per second of both, their ratio for the whole model and for
        attention with routing, milliseconds of the latter.
    """
    model, past = focus.model, ids.shape[1]
    given, last = {}, {}
    for mode in MODES:
        with attending(focus, mode):
            given[mode] = cache_argument(model, StaticCache(config=model.config, max_cache_len=past + 2 * steps + 3))
            out = model(input_ids=ids, **given[mode], use_cache=True, logits_to_keep=1)
            last[mode] = out.logits[:, -1:].argmax(-1)
    times: dict[str, list[float]] = {"full": [], "focus": []}
    attention: dict[str, list[float]] = {"full": [], "focus": []}
    for step in range(steps + 1):
        for mode in MODES:

            def one(mode: str = mode) -> None:
                out = model(input_ids=last[mode], **given[mode], use_cache=True)
                last[mode] = out.logits[:, -1:].argmax(-1)

            _, elapsed = timed_by_stage(focus, mode, one)
            if step > 0:
                times[mode].append(elapsed * 1000)
                attention[mode].append((focus.seconds.attention + focus.seconds.routing) * 1000)
    median = {mode: statistics.median(values) for mode, values in times.items()}
    return {
        "past_tokens": past,
        "steps": steps,
        "full_ms": asdict(Spread.of(times["full"])),
        "focus_ms": asdict(Spread.of(times["focus"])),
        "full_tokens_per_second": 1000 / median["full"],
        "focus_tokens_per_second": 1000 / median["focus"],
        "full_over_focus": median["full"] / median["focus"],
        "attention_ms": {mode: asdict(Spread.of(values)) for mode, values in attention.items()},
        "attention_full_over_focus": statistics.median(attention["full"]) / statistics.median(attention["focus"]),
    }
