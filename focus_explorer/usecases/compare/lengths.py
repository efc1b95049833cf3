"""One attention layer timed at growing lengths with a run's own group sizes: the length at which Focus overtakes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import by_top_k, executed
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import ConfigError, MemoryShortError
from focus_explorer.progress import Progress, held_at, silent
from focus_explorer.usecases.jobs import job_limits
from focus_explorer.usecases.models import LoadedModel
from focus_explorer.usecases.run_model import backend_again, compose_run, lease_run_model, run_changes
from focus_explorer.usecases.runs import run_config
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.comparisons import (
    CrossingPayload,
    LayerLengthsPayload,
    LengthPayload,
    MeasuredLengths,
)
from focus_runtime.composition.changes import changed_budget
from focus_runtime.store.database import Database
from focus_runtime.store.runs import write_measured

if TYPE_CHECKING:
    from focus_runtime.composition.attach import FocusModel


SHORTEST, LONGEST = 256, 1 << 18
REPEATS = 5
GROWTH = 4.2  # full attention's time quadruples when the length doubles; a little is left for the rest


def crossing(points: Sequence[Mapping[str, Any]]) -> CrossingPayload | None:
    """The length from which Focus with routing stays faster up to the longest measured length. None: no point.

    Between two measured lengths the logarithm of the ratio of the times is taken as linear in the logarithm of the
    length; beyond them nothing is claimed. `clear`: at the longest length the repeats of the two modes do not overlap.
    """
    rows = sorted(points, key=lambda row: row["tokens"])
    if not rows:
        return None
    gains = [math.log(row["full_median"] / (row["focus_median"] + row["routing_median"])) for row in rows]
    last = rows[-1]
    routing = last["routing_median"]
    clear = last["full_low"] > last["focus_high"] + routing or last["full_high"] < last["focus_low"] + routing
    slower = [number for number, gain in enumerate(gains) if gain <= 0]
    nowhere: CrossingPayload = {"kind": "never", "tokens": None, "below": None, "above": None, "clear": clear}
    if not slower:
        return {**nowhere, "kind": "from the start"}
    at = slower[-1]
    if at == len(rows) - 1:
        return nowhere if len(slower) == len(rows) else {**nowhere, "kind": "mixed"}
    below, above = rows[at]["tokens"], rows[at + 1]["tokens"]
    part = gains[at] / (gains[at] - gains[at + 1])
    tokens = math.exp(math.log(below) + part * (math.log(above) - math.log(below)))
    return {"kind": "interpolated", "tokens": tokens, "below": below, "above": above, "clear": clear}


def check_seconds(seconds: float) -> None:
    most = min(3600.0, job_limits().seconds or 3600.0)
    if not 1 <= seconds <= most:
        raise ConfigError(f"the time is {seconds:g} seconds", expected=f"1 to {most:,.0f}")


def measure_lengths(
    service: Service, run_id: str, layer: int, *, seconds: float = 30.0, progress: Progress = silent
) -> MeasuredLengths:
    """Time one layer of the run's model at 256, 512, ... tokens for as long as the time lasts.

    The layer is composed with the run's centroids and settings, and called as the model calls it. Queries, keys and
    values are random; the groups have the shares they have in this layer of the run.
    """
    check_seconds(seconds)
    run = fetch_run(service.database, run_id)
    tokens = _tokens(service.database, run, layer)
    start, length, last = time.monotonic(), SHORTEST, 0.0
    while length <= LONGEST:
        spent = time.monotonic() - start
        if length > SHORTEST and spent + GROWTH * last > seconds:
            break
        progress(f"{length:,} tokens", min(0.99, spent / seconds))
        began = time.monotonic()
        with lease_run_model(service, run, progress=held_at(progress, min(0.99, spent / seconds))) as loaded:
            try:
                with _composed(service, run, loaded) as focus:
                    began = time.monotonic()  # not the wait for the model, nor the balancing of random centroids
                    row = _measure(focus, run, tokens, length)
            except MemoryShortError as error:
                kept = "what was measured up to there is kept" if length > SHORTEST else "close other programs"
                raise MemoryShortError(error.problem, expected=error.expected, fix=kept) from error
        last = time.monotonic() - began
        write_measured(service.database, "crossovers", row)
        length *= 2
    return lengths(service, run_id)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The T tokens of a run in one layer: (S, T) memberships by distinct top-k, (T, R) routing vectors, and (T,) which
    are in all groups whatever the k.
    """

    layer: int
    memberships: NDArray[np.int64]
    vectors: NDArray[np.float32]
    sinks: NDArray[np.bool_]


def _tokens(database: Database, run: dict[str, Any], layer: int) -> _Tokens:
    parts = executed(database, run, layer)[layer]
    count, num_groups = run["num_tokens"], run_config(run).num_groups
    rows = fetch(database, "routing", run_id=run["run_id"], layer=layer, positions=list(range(count)))
    flat = rows["routing"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    every = (1 << num_groups) - 1 if num_groups < 64 else -1
    sinks = np.zeros(count, dtype=bool)
    for one in parts:
        if one.part.top_k is not None and one.part.top_k < num_groups:
            sinks |= (one.membership & every) == every
    return _Tokens(layer, by_top_k(parts), np.array(flat, dtype=np.float32).reshape(count, -1), sinks)


@contextmanager
def _composed(service: Service, run: dict[str, Any], loaded: LoadedModel) -> Iterator[FocusModel]:
    """Focus with the run's settings, those changed by hand included; changes of single tokens are of its text alone."""
    from focus_runtime.models.structure import head_counts

    focus = compose_run(service, run, loaded, backend=backend_again(run))
    try:
        budget = changed_budget(focus.config, run_changes(run), head_counts(loaded.model))
        with focus.with_config(focus.config.replace(budget=budget)):
            yield focus
    finally:
        focus.detach()  # the model is shared


def _measure(focus: FocusModel, run: dict[str, Any], tokens: _Tokens, length: int) -> dict[str, Any]:
    import torch

    from focus_runtime.measure.speed.layer import composed_layer_speed, tokens_like

    config = run_config(run)
    like = tokens_like(torch.from_numpy(tokens.memberships), length, torch.Generator().manual_seed(length))
    measured = composed_layer_speed(
        focus,
        tokens.layer,
        torch.from_numpy(tokens.vectors)[like],
        everywhere=torch.from_numpy(tokens.sinks)[like],
        repeats=REPEATS,
        seed=length,
    )
    times = {
        f"{mode}_{value}": measured[f"{mode}_ms"][value]
        for mode in ("full", "focus")
        for value in ("median", "low", "high")
    }
    return times | {
        "run_id": run["run_id"],
        "layer": tokens.layer,
        "tokens": length,
        "top_k": config.top_k,
        "window_size": config.window,
        "routing_median": measured["routing_ms"]["median"],
        "retained_pairs": measured["retained_pairs"],
        "repeats": REPEATS,
        "backend": measured["backend"],
        "device": measured["device"],
        "dtype": measured["dtype"],
        "threads": torch.get_num_threads(),
    }


def lengths(service: Service, run_id: str) -> MeasuredLengths:
    """`layers`: by layer, the measured `points` and the `crossing` of their times."""
    points: dict[int, list[LengthPayload]] = {}
    for row in fetch(service.database, "crossovers", run_id=run_id).to_pylist():
        points.setdefault(row["layer"], []).append(row | {"measured_at": row["measured_at"].isoformat()})
    layers: dict[str, LayerLengthsPayload] = {
        str(layer): {"points": points[layer], "crossing": crossing(points[layer])} for layer in sorted(points)
    }
    return {"layers": layers}
