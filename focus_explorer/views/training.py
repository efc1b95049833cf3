"""Trainings and their steps -> what the Training tab draws; long curves are thinned to means of equal stretches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

POINTS = 2000
COLUMNS = ("loss", "dominance", "dominance_max", "retained_pairs", "tokens_per_second", "learning_rate")
_PLAIN = (
    "training_id",
    "name",
    "status",
    "message",
    "kind",
    "model_id",
    "device",
    "dtype",
    "seed",
    "steps",
    "step",
    "elapsed",
    "loss",
    "perplexity",
    "dominance",
    "dominance_max",
    "retained_pairs",
    "tokens_per_second",
    "resumable",
    "usable",
    "out",
)
Rows = list[dict[str, Any]]


def training_summary(row: dict[str, Any]) -> dict[str, Any]:
    """One training as the list and the header show it; JSON-ready."""
    left = row["steps"] - row["step"]
    pace = row["seconds_per_step"]
    config, settings = row["config"], row["settings"]
    return {
        **{name: _plain(row[name]) for name in _PLAIN},
        "created_at": row["created_at"].isoformat(),
        "remaining": pace * left if pace and row["status"] in ("running", "stopping") else None,
        "texts": [name.rsplit("/", 1)[-1] for name in row["texts"]],
        "config": {
            name: config[name]
            for name in (
                "num_groups",
                "routing_dim",
                "top_k",
                "window",
                "num_sinks",
                "gate",
                "normalisation",
                "assignment",
            )
            if name in config
        },
        "settings": {
            name: settings[name] for name in ("seq_len", "batch", "accumulation", "learning_rate") if name in settings
        },
        "validation": _validation(row["validation"]),
        # a resumed training does some steps again: what was drawn of it before is then out of date
        "part": f"{row['pid']}-{row['process_started']}",
    }


def _validation(report: dict[str, Any]) -> dict[str, Any]:
    """{"full": perplexity, "scored": tokens, "focus": {"k=1": perplexity, ...}}; empty without held-out text."""
    if "full" not in report:
        return {}
    focus = {name: row["perplexity"] for name, row in sorted(report.items()) if name.startswith("k=")}
    return {"full": report["full"], "scored": report["scored_tokens"], "focus": focus}


def curves_payload(steps: pa.Table) -> dict[str, dict[str, dict[str, Any]]]:
    """Steps -> {training_id: {mode: columns}}; every column is a list as long as `step`.

    Args:
        steps: rows of `training_steps` ordered by training_id, mode and step.

    Returns:
        Per mode `step`, the columns of `COLUMNS`, `stride` (steps a point is the mean of) and `last` (the newest step).
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    ids, modes = (steps[name].to_numpy(zero_copy_only=False) for name in ("training_id", "mode"))
    for training_id in dict.fromkeys(ids):
        for mode in dict.fromkeys(modes[ids == training_id]):
            rows = steps.filter(pa.array((ids == training_id) & (modes == mode)))
            found.setdefault(str(training_id), {})[str(mode)] = _curve(rows)
    return found


def _curve(rows: pa.Table) -> dict[str, Any]:
    stride = math.ceil(rows.num_rows / POINTS)
    step = rows["step"].to_numpy()
    columns = {name: _thin(rows[name].to_numpy(zero_copy_only=False), stride) for name in COLUMNS}
    return {
        "step": step[stride - 1 :: stride].tolist() + ([int(step[-1])] if step.size % stride else []),
        **{name: [_rounded(value) for value in values.tolist()] for name, values in columns.items()},
        "stride": stride,
        "last": int(step[-1]),
    }


def _thin(values: NDArray[Any], stride: int) -> NDArray[np.float64]:
    """Means of stretches of `stride` values; the last stretch may be shorter."""
    numbers = values.astype(np.float64)
    if stride == 1:
        return numbers
    starts = np.arange(0, numbers.size, stride)
    return np.add.reduceat(numbers, starts) / np.diff(np.append(starts, numbers.size))


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    return _rounded(value) if isinstance(value, float) else value
