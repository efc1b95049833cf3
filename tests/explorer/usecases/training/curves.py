"""The stored curve of a training."""

from __future__ import annotations

from focus_explorer.data.queries import fetch
from focus_explorer.usecases.service import Service


def curve(tmp_path, training_id):
    """Step and loss as stored."""
    requested = {"training_ids": [training_id], "seen_ids": [""], "seen_modes": [""], "seen_steps": [0]}
    rows = fetch(Service(tmp_path / "runs.duckdb").database, "training_steps", **requested).to_pylist()
    return [(row["step"], row["loss"]) for row in rows]
