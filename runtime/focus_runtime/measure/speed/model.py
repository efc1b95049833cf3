"""A whole model timed: prefill and decode, full attention and Focus in turn."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import StaticCache

from focus_runtime.composition.attach import FocusModel
from focus_runtime.measure.loss import final_hidden
from focus_runtime.measure.timing import MODES, Spread, attending, milliseconds, peak_growth, timed_by_stage, timed_pass
from focus_runtime.models.structure import cache_argument


@dataclass(slots=True)
class Filled:
    """A static cache after a text, as an argument of the model, and the (1, 1) id of the next token to be read."""

    given: dict[str, Any]
    last: Tensor


@torch.no_grad()
def prefill_speed(focus: FocusModel, ids: Tensor, *, repeats: int = 3) -> dict[str, Any]:
    """Time the whole model on one text, to the last hidden state: full attention (torch's) and Focus in turn.

    Passes of each over (1, T) ids on the model's device: one that warms up, `repeats` that are timed, on a GPU as many
    before them for the stages (see `timed_by_stage`), and one for the memory. Returns a JSON-ready row: milliseconds
    and tokens per second, full / Focus for the whole model and for attention with routing, stages, peak memory growth.
    """
    model, device = focus.model, ids.device
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    stages: dict[str, dict[str, list[float]]] = {mode: {} for mode in MODES}
    for mode in MODES:
        with attending(focus, mode):
            final_hidden(model, ids)
    for _ in range(repeats):
        for mode in MODES:
            _, elapsed = timed_pass(focus, ids, mode)
            times[mode].append(elapsed * 1000)
            for name, seconds in focus.seconds.seconds.items():
                stages[mode].setdefault(name, []).append(seconds * 1000)
    peaks = {}
    for mode in MODES:
        with attending(focus, mode):
            peaks[mode] = peak_growth(lambda: final_hidden(model, ids), device)
    per_stage = {m: {n: statistics.median(v) for n, v in by_name.items()} for m, by_name in stages.items()}
    return _prefill_row(focus, ids, times, per_stage, peaks)


@torch.no_grad()
def single_prefill_speed(focus: FocusModel, ids: Tensor, *, steps: int = 8) -> tuple[dict[str, Any], dict[str, Filled]]:
    """Time one pass of each over a long text of (1, T) ids, that which fills the static cache for `decode_speed`.

    Nothing warms up here: shorter texts must have compiled the kernels. The pass of each does allocate its memory, of
    which none is kept from the pass before, plans what torch's kernels plan by length, and times its stages, whose
    events cost the host a few microseconds a layer. It writes the cache and computes one token's logits besides.

    Returns the row of `prefill_speed` with "cached": True and "cache_bytes", what one mode's keys and values take,
    which count among the growth of its peak memory; and the filled caches by mode.
    """
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    stages: dict[str, dict[str, float]] = {}
    filled: dict[str, Filled] = {}
    peaks = {}
    for mode in MODES:
        if ids.device.type == "cuda":
            torch.cuda.empty_cache()
        focus.reset_seconds()

        def fill(mode: str = mode) -> None:
            filled[mode] = _filled(focus, ids, mode, steps)

        def timed(mode: str = mode) -> None:
            times[mode].append(milliseconds(fill, ids.device))

        peaks[mode] = peak_growth(timed, ids.device)
        if not times[mode]:  # where the system cannot start a peak over, nothing ran
            timed()
        stages[mode] = {name: seconds * 1000 for name, seconds in focus.seconds.seconds.items()}
    row = _prefill_row(focus, ids, times, stages, peaks)
    (cache,) = filled["focus"].given.values()
    cache_bytes = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    return row | {"cached": True, "cache_bytes": cache_bytes}, filled


def _filled(focus: FocusModel, ids: Tensor, mode: str, steps: int) -> Filled:
    """A static cache of (1, T) ids by one mode, with room for a step to warm up and for `steps`, all of them twice."""
    model = focus.model
    with attending(focus, mode):
        room = ids.shape[1] + 2 * steps + 3
        given = cache_argument(model, StaticCache(config=model.config, max_cache_len=room))
        out = model(input_ids=ids, **given, use_cache=True, logits_to_keep=1)
        return Filled(given, out.logits[:, -1:].argmax(-1))


def _prefill_row(
    focus: FocusModel,
    ids: Tensor,
    times: Mapping[str, Sequence[float]],
    stages: Mapping[str, Mapping[str, float]],
    peaks: Mapping[str, int | None],
) -> dict[str, Any]:
    """What `prefill_speed` returns, from milliseconds of passes and of stages, and bytes, by mode."""
    attention = stages["focus"]["attention"] + stages["focus"].get("routing", 0.0)
    return {
        "tokens": ids.shape[1],
        **_compared(times, ids.shape[1]),
        "attention_full_over_focus": stages["full"]["attention"] / attention,
        "stages_ms": stages,
        "backends": focus.backend_names.split(", "),
        "peak_bytes": dict(peaks),
    }


def _compared(times: Mapping[str, Sequence[float]], tokens: int) -> dict[str, Any]:
    """Milliseconds of a call that reads so many tokens, tokens per second, and the ratio of both modes."""
    spread = {mode: Spread.of(times[mode]) for mode in MODES}
    return {
        **{f"{mode}_ms": asdict(own) for mode, own in spread.items()},
        **{f"{mode}_tokens_per_second": tokens / own.median * 1000 for mode, own in spread.items()},
        "full_over_focus": spread["full"].median / spread["focus"].median,
    }


@torch.no_grad()
def decode_speed(
    focus: FocusModel, ids: Tensor, *, steps: int = 8, filled: dict[str, Filled] | None = None
) -> dict[str, Any]:
    """Time single decode steps after (1, T) ids, full attention and Focus in turn, each with its own static cache.

    A static cache, because a growing one copies every past key and value at each step, with and without Focus.

    Args:
        steps: timed steps of each, after one that warms up.
        filled: caches of this text by mode from `single_prefill_speed` with as many steps, continued here. None: they
            are filled first, in a pass of each.
    """
    model, past = focus.model, ids.shape[1]
    caches = filled or {mode: _filled(focus, ids, mode, steps) for mode in MODES}
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    attention: dict[str, list[float]] = {mode: [] for mode in MODES}
    for step in range(steps + 1):
        for mode in MODES:

            def one(cache: Filled = caches[mode]) -> None:
                out = model(input_ids=cache.last, **cache.given, use_cache=True)
                cache.last = out.logits[:, -1:].argmax(-1)

            _, elapsed = timed_by_stage(focus, mode, one)
            if step > 0:
                times[mode].append(elapsed * 1000)
                attention[mode].append((focus.seconds.attention + focus.seconds.routing) * 1000)
    return {
        "past_tokens": past,
        "steps": steps,
        **_compared(times, 1),
        "attention_ms": {mode: asdict(Spread.of(values)) for mode, values in attention.items()},
        "attention_full_over_focus": statistics.median(attention["full"]) / statistics.median(attention["focus"]),
    }
