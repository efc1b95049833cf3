"""Rows of runs -> the cards of the Runs tab."""

from __future__ import annotations

import json
from typing import Any

from focus_explorer.views.config import config_payload
from focus_explorer.views.payloads.stored_runs import RunCardPayload


def run_card(row: dict[str, Any]) -> RunCardPayload:
    """One run of the list, as JSON values; `deleted_at` is None while it is kept."""
    deleted = row["deleted_at"]
    return {
        "run_id": row["run_id"],
        "title": row["title"],
        "name": row["name"],
        "note": row["note"],
        "tags": row["tags"],
        "model_id": row["model_id"],
        "centroids_name": row["centroids_name"],
        "centroids_sha256": row["centroids_sha256"],
        "num_tokens": row["num_tokens"],
        "added_tokens": json.loads(row["added_tokens"] or "[]"),
        "perplexity_full": row["perplexity_full"],
        "perplexity_focus": row["perplexity_focus"],
        "retained_pairs": row["retained_pairs"],
        "dominance": row["dominance"],
        "device": row["device"],
        "dtype": row["dtype"],
        "config": config_payload(json.loads(row["config"])),
        "created_at": row["created_at"].isoformat(),
        "deleted_at": deleted.isoformat() if deleted else None,
        "owner": row["owner"],
    }
