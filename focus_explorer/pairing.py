"""Two stored runs of the same tokens side by side, their groups matched layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_explorer.alignment import align
from focus_explorer.errors import InputError
from focus_explorer.queries import fetch, fetch_run
from focus_explorer.run_model import run_config
from focus_explorer.service import Service
from focus_explorer.statistics import mean_interval
from focus_explorer.views.payload import encode


def partners(service: Service, run_id: str) -> list[dict[str, Any]]:
    """Other runs of exactly the same tokens, newest first."""
    same = set(fetch(service.database, "same_tokens", run_id=run_id)["run_id"].to_pylist())
    return [
        {
            "run_id": run["run_id"], "created_at": run["created_at"].isoformat(), "model_id": run["model_id"],
            "centroids_name": run["centroids_name"], "centroids_sha256": run["centroids_sha256"],
            "config": run["config"], "perplexity_focus": run["perplexity_focus"],
            "retained_pairs": run["retained_pairs"],
        }
        for run in service.runs()
        if run["run_id"] in same
    ]  # fmt: skip


def beside(service: Service, run_id: str, other_id: str) -> dict[str, Any]:
    """Two runs of the same tokens, the other's groups matched with this one's in every layer both have.

    Returns:
        `layers` (layer, names, overlap, rand), `top` (bytes, layer by layer: the other run's groups in this run's
        names, 255 for a group without a partner), `losses` of the other run's Focus, and `difference`, its loss
        minus this run's: mean, low, high, count.

    Raises:
        InputError: the texts differ.
    """
    if other_id not in {run["run_id"] for run in partners(service, run_id)}:
        raise InputError(f"the run {other_id!r} has another text", expected="a run of the same tokens")
    mine, other = _tops(service, run_id), _tops(service, other_id)
    sizes = [run_config(fetch_run(service.database, name)).num_groups for name in (run_id, other_id)]
    layers, tops = [], []
    for layer in sorted(mine.keys() & other.keys()):
        found = align(mine[layer], other[layer], *sizes)
        names = np.array([name if name >= 0 else 255 for name in found.names], dtype=np.uint8)
        layers.append({"layer": layer, "names": found.names, "overlap": found.overlap, "rand": found.rand})
        tops.append(names[other[layer]])
    first, second = (_focus_losses(service, name) for name in (run_id, other_id))
    mean, low, high = mean_interval(second - first)
    return {
        "layers": layers,
        "top": encode(np.concatenate(tops)) if tops else "",
        "losses": [None, *np.round(second, 4).tolist()],
        "difference": {"mean": mean, "low": low, "high": high, "count": int(second.size)},
    }


def _tops(service: Service, run_id: str) -> dict[int, NDArray[np.int64]]:
    rows = fetch(service.database, "assignments", run_id=run_id)
    layers, tops = rows["layer"].to_numpy(), rows["top_group"].to_numpy().astype(np.int64)
    return {int(layer): tops[layers == layer] for layer in np.unique(layers)}


def _focus_losses(service: Service, run_id: str) -> NDArray[np.float64]:
    rows = fetch(service.database, "losses", run_id=run_id)
    modes = rows["mode"].to_numpy(zero_copy_only=False)
    return np.asarray(rows["nll"].to_numpy()[modes == "focus"], dtype=np.float64)
