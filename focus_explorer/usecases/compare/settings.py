"""A run's text at other settings of top-k and window, with full attention and two baselines without learned groups.

The model is leased for one measurement at a time, so that a text can be explored in between, and every measurement is
stored as soon as it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import ConfigError
from focus_explorer.progress import Progress, held_at, silent
from focus_explorer.usecases.centroids.ready import calibration_ids
from focus_explorer.usecases.jobs import stop_requested
from focus_explorer.usecases.models import LoadedModel
from focus_explorer.usecases.run_model import backend_again, lease_run_model, run_centroids, run_changes
from focus_explorer.usecases.runs import run_config, run_special_tokens, token_ids
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.comparisons import GridCellPayload, GridValuesPayload, MeasuredGrid
from focus_runtime.config import TextOptions
from focus_runtime.measure.intervals import moving_block_interval
from focus_runtime.store.runs import write_measured

if TYPE_CHECKING:
    from focus_runtime.routing.centroids import Centroids

MOST_CELLS = 100
REPEATS = 3
NAMES = {"focus": "Focus", "window": "Window and sinks only", "random": "Random centroids"}


def suggested(num_groups: int, num_tokens: int, top_k: int, window: int) -> GridValuesPayload:
    """Values of a grid that suits a run, ascending; its own setting is always among them."""
    groups = sorted({k for k in (1, 2, top_k) if 1 <= k < max(2, num_groups)} | {top_k})
    spread = {1 << max(3, (num_tokens // part).bit_length() - 1) for part in (64, 16, 4)}
    return {"top_k": groups, "window": sorted({w for w in spread if w < num_tokens} | {window})}


def check_grid(run: dict[str, Any], top_k: Sequence[int], window: Sequence[int], repeats: int) -> None:
    groups = run_config(run).num_groups
    if not top_k or not window:
        raise ConfigError("the grid is empty", expected="at least one top-k and one window")
    for value in top_k:
        if not 1 <= value <= groups:
            raise ConfigError(f"top-k is {value}", expected=f"1 to {groups}, the number of groups")
    stored = run_config(run).window  # of a short text it may be longer than the text
    for value in window:
        if not 0 <= value < run["num_tokens"] and value != stored:
            raise ConfigError(
                f"the window is {value}",
                expected=f"0 to {run['num_tokens'] - 1:,}: the text has {run['num_tokens']:,} tokens",
            )
    if not 1 <= repeats <= 100:
        raise ConfigError(f"repeats is {repeats}", expected="1 to 100")
    if len(grid_cells(top_k, window)) > MOST_CELLS:
        raise ConfigError(
            f"the grid has {len(grid_cells(top_k, window))} cells",
            expected=f"at most {MOST_CELLS}",
            fix="choose fewer values",
        )


def grid_cells(top_k: Sequence[int], window: Sequence[int]) -> list[tuple[str, int, int]]:
    """(kind, top_k, window) of every measurement, the run's own centroids first; without groups top-k is 0."""
    ks, ws = sorted(set(top_k)), sorted(set(window))
    full = [(k, w) for w in ws for k in ks]
    return [*(("focus", k, w) for k, w in full), *(("window", 0, w) for w in ws), *(("random", k, w) for k, w in full)]


def measure_grid(
    service: Service,
    run_id: str,
    top_k: Sequence[int],
    window: Sequence[int],
    *,
    repeats: int = REPEATS,
    centroids: str | None = None,
    progress: Progress = silent,
) -> list[GridCellPayload]:
    """Measure a run's text at every top-k and window: its centroids, window and sinks alone, and random centroids."""
    run = fetch_run(service.database, run_id)
    check_grid(run, top_k, window, repeats)
    progress("Loading the model", 0.0)
    with lease_run_model(service, run, progress=progress) as loaded:
        own = run_centroids(service, run, loaded, centroids)
        progress("Balancing the random centroids", 0.0)
        sources = {"focus": own, **baseline_centroids(run, loaded, own)}
    cells = grid_cells(top_k, window)
    for number, cell in enumerate(cells):
        kind, k, w = cell
        label = f"{NAMES[kind]}, " + (f"top-k {k}, " if k else "") + f"window {w}"
        progress(f"{label} ({number + 1} of {len(cells)})", number / len(cells))
        with lease_run_model(service, run, progress=held_at(progress, number / len(cells))) as loaded:
            row = _measure_cell(service, run, loaded, sources[kind], cell, repeats=repeats)
        write_measured(service.database, "comparisons", row)
    return grid_rows(service, run_id)


def measure_again(
    service: Service, run_id: str, cells: Sequence[tuple[str, int, int]], *, progress: Progress
) -> list[dict[str, Any]]:
    """Rows of `comparisons` of cells measured once more, without storing them: only the times differ."""
    run = fetch_run(service.database, run_id)
    rows = []
    with lease_run_model(service, run) as loaded:
        own = run_centroids(service, run, loaded)
        sources = {"focus": own, **baseline_centroids(run, loaded, own)}
        for number, cell in enumerate(cells):
            progress(f"Setting {number + 1} of {len(cells)}", number / len(cells))
            rows.append(_measure_cell(service, run, loaded, sources[cell[0]], cell))
    return rows


def baseline_centroids(run: dict[str, Any], loaded: LoadedModel, own: Centroids) -> dict[str, Centroids]:
    """What a run's own centroids are compared with: `window` (no groups) and `random`, balanced at its settings."""
    from focus_runtime.routing.centroids import no_groups
    from focus_runtime.run.random_baseline import COMPARISON_SEED, baseline_seed, random_baseline, random_seed

    executed = run_config(run)
    causal = executed.assignment == "causal"
    random = random_baseline(
        loaded.model,
        executed,
        seed=baseline_seed(random_seed(own), COMPARISON_SEED),
        layers=own.routers,
        calibrate_on=calibration_ids(loaded, run_special_tokens(run)) if causal else None,
    )
    return {"window": no_groups(own), "random": random}


def _measure_cell(
    service: Service,
    run: dict[str, Any],
    loaded: LoadedModel,
    centroids: Centroids,
    cell: tuple[str, int, int],
    *,
    repeats: int = 1,
) -> dict[str, Any]:
    import torch

    from focus_runtime.measure.timing import MODES
    from focus_runtime.models.devices import device_names, dtype_name, input_device
    from focus_runtime.routing.centroids import has_no_groups
    from focus_runtime.run.text import measure_setting

    kind, k, w = cell
    config = run_config(run)
    ids = torch.tensor([token_ids(service.database, run["run_id"])], device=input_device(loaded.model))
    options = TextOptions.from_config(
        config,
        top_k=k or None,
        window=w,
        backend=backend_again(run),
        changes=tuple(map(str, run_changes(run))) if kind == "focus" else (),
        repeats=repeats,
    )
    measured = measure_setting(loaded.model, centroids, ids, options, stop_requested)
    full, focus = (measured.predicted[mode].nll for mode in MODES)
    mean, low, high = moving_block_interval(focus - full)
    times = {
        f"{name}_{mode}": [one.milliseconds for one in measured.timings if (one.mode, one.stage) == (mode, stage)]
        for name, stage in (("attention", "attention"), ("total", "end_to_end"))
        for mode in MODES
    }
    return {
        "run_id": run["run_id"],
        "kind": kind,
        "top_k": k,
        "window_size": w,
        "num_sinks": config.num_sinks,
        "assignment": config.assignment,
        "scored": int(full.size),
        "perplexity_full": float(np.exp(full.mean())),
        "perplexity_focus": float(np.exp(focus.mean())),
        "delta_mean": mean,
        "delta_low": low,
        "delta_high": high,
        "retained_pairs": float(np.mean([layer.retained_pairs for layer in measured.layers])),
        "dominance": None if has_no_groups(centroids) else float(np.mean([one.dominance for one in measured.layers])),
        **times,
        "backend": measured.backend,
        "device": device_names(loaded.model),
        "dtype": dtype_name(loaded.model),
        "threads": torch.get_num_threads(),
    }


def grid_rows(service: Service, run_id: str) -> list[GridCellPayload]:
    """The stored cells of a run, JSON-ready: medians with lowest and highest, intervals over tokens in blocks."""
    rows = fetch(service.database, "comparisons", run_id=run_id).to_pylist()
    return [row | {"measured_at": row["measured_at"].isoformat()} for row in rows]


def grid(service: Service, run_id: str) -> MeasuredGrid:
    """`cells` measured so far, `suggested` values, and the run's own `setting`."""
    run = fetch_run(service.database, run_id)
    config = run_config(run)
    return {
        "cells": grid_rows(service, run_id),
        "suggested": suggested(config.num_groups, run["num_tokens"], config.top_k, config.window),
        "setting": {"top_k": config.top_k, "window": config.window, "num_sinks": config.num_sinks},
        "num_groups": config.num_groups,
    }
