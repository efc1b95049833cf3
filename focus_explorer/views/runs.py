"""Rows of runs -> what the list of runs on the page is drawn from."""

from __future__ import annotations

import json
from typing import Any


def run_card(row: dict[str, Any]) -> dict[str, Any]:
    """One run of the list, as JSON values; `deleted_at` is None while it is kept."""
    plain = (
        "run_id",
        "title",
        "name",
        "note",
        "tags",
        "model_id",
        "centroids_name",
        "centroids_sha256",
        "num_tokens",
        "perplexity_full",
        "perplexity_focus",
        "retained_pairs",
        "dominance",
        "device",
        "dtype",
    )
    deleted = row["deleted_at"]
    return {key: row[key] for key in plain} | {
        "config": json.loads(row["config"]),
        "created_at": row["created_at"].isoformat(),
        "deleted_at": deleted.isoformat() if deleted else None,
    }
