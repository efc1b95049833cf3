"""One attention layer timed at growing lengths with a run's own group sizes: the length at which Focus overtakes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from focus_explorer.data.parts import PartGroups, executed
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import ConfigError, MemoryShortError
from focus_explorer.progress import Progress, held_at
from focus_explorer.services.job_limits import job_limits
from focus_explorer.services.run_model import lease_run_model
from focus_explorer.services.runs import run_config
from focus_explorer.services.service import Service
from focus_explorer.statistics.crossover import crossing
from focus_explorer.views.payloads.comparisons import (
    CrossingPayload,
    LayerLengthsPayload,
    LengthPayload,
    MeasuredLengths,
)
from focus_runtime.models.device_map import input_device
from focus_runtime.store.comparisons import write_length

SHORTEST, LONGEST = 256, 1 << 18
REPEATS = 5
GROWTH = 4.2  # full attention's time quadruples when the length doubles; a little is left for the rest


def check_seconds(seconds: float) -> None:
    """Refuse a budget out of range.

    Raises:
        ConfigError: it is not between a second and an hour, or longer than a job may work.
    """
    most = min(3600.0, job_limits().seconds or 3600.0)
    if not 1 <= seconds <= most:
        raise ConfigError(f"the time is {seconds:g} seconds", expected=f"1 to {most:,.0f}")


def measure_lengths(
    service: Service,
    run_id: str,
    layer: int,
    *,
    seconds: float = 30.0,
    repeats: int = REPEATS,
    progress: Progress = lambda stage, fraction: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> MeasuredLengths:
    """Time one layer of the run's model at 256, 512, ... tokens for as long as the time lasts.

    The inputs are random; the groups have the shares they have in this layer of the run, and its heads their settings.

    Args:
        service: database and model.
        run_id: of the run.
        layer: layer number.
        seconds: budget; the next length is left out when it is expected to exceed it. The first is always measured.
        repeats: timed passes at each length.
        progress: called before each length; may raise Cancelled.
        cancelled: called before each length; True stops the measurement.

    Returns:
        As `lengths`.

    Raises:
        InputError: the layer or the model cannot be used.
    """
    check_seconds(seconds)
    run = fetch_run(service.database, run_id)
    parts = executed(service.database, run, layer)[layer]
    start, length, last = time.monotonic(), SHORTEST, 0.0
    while length <= LONGEST:
        spent = time.monotonic() - start
        if length > SHORTEST and spent + GROWTH * last > seconds:
            break
        progress(f"{length:,} tokens", min(0.99, spent / seconds))
        began = time.monotonic()
        with lease_run_model(service, run, progress=held_at(progress, min(0.99, spent / seconds))) as loaded:
            began = time.monotonic()  # not the wait for the model
            try:
                row = _measure(run, loaded.model, layer, parts, length, repeats)
            except MemoryShortError as error:
                kept = "what was measured up to there is kept" if length > SHORTEST else "close other programs"
                raise MemoryShortError(error.problem, expected=error.expected, fix=kept) from error
        last = time.monotonic() - began
        write_length(service.database, row)
        length *= 2
    return lengths(service, run_id)


def _measure(
    run: dict[str, Any], model: Any, layer: int, parts: Sequence[PartGroups], length: int, repeats: int
) -> dict[str, Any]:
    import torch

    from focus_runtime.measure.speed import LayerPart, LayerSetting, layer_speed, membership_like

    config, device = run_config(run), str(input_device(model))
    setting = replace(LayerSetting.of_model(model, config), sliding_window=parts[0].part.rule.sliding_window)

    def like(one: PartGroups) -> torch.Tensor:
        return membership_like(torch.from_numpy(one.membership.copy()), length, torch.Generator().manual_seed(length))

    how: dict[str, Any] = {"repeats": repeats, "seed": length, "device": device}
    if len(parts) == 1 and not parts[0].part.full:
        setting = replace(setting, window=parts[0].part.rule.window)
        measured = layer_speed(setting, length, membership=like(parts[0]), **how)
    else:
        apart = [
            LayerPart(
                one.part.heads,
                one.part.rule.window,
                None if one.part.full else like(one).to(device),
                by_query=one.part.by_query,
            )
            for one in parts
        ]
        measured = layer_speed(setting, length, parts=apart, **how)
    full, focus, routing = measured["full_ms"], measured["focus_ms"], measured["routing_ms"]
    return {
        "run_id": run["run_id"],
        "layer": layer,
        "tokens": length,
        "top_k": config.top_k,
        "window_size": config.window,
        "full_median": full["median"],
        "full_low": full["low"],
        "full_high": full["high"],
        "focus_median": focus["median"],
        "focus_low": focus["low"],
        "focus_high": focus["high"],
        "routing_median": routing["median"],
        "retained_pairs": measured["retained_pairs"],
        "repeats": repeats,
        "backend": measured["backend"],
        "device": device,
        "dtype": setting.dtype,
        "threads": torch.get_num_threads(),
    }


def lengths(service: Service, run_id: str) -> MeasuredLengths:
    """`layers`: by layer, the measured `points` and the `crossing` of their times (see `Crossing`)."""
    points: dict[int, list[LengthPayload]] = {}
    for row in fetch(service.database, "crossovers", run_id=run_id).to_pylist():
        points.setdefault(row["layer"], []).append(row | {"measured_at": row["measured_at"].isoformat()})
    layers: dict[str, LayerLengthsPayload] = {
        str(layer): {"points": points[layer], "crossing": _crossing(points[layer])} for layer in sorted(points)
    }
    return {"layers": layers}


def _crossing(points: Sequence[LengthPayload]) -> CrossingPayload | None:
    result = crossing(points)
    if result is None:
        return None
    return {
        "kind": result.kind,
        "tokens": result.tokens,
        "below": result.below,
        "above": result.above,
        "clear": result.clear,
    }
