"""Which masks of a run can be exported, and how large they are."""

from __future__ import annotations

from focus_explorer.data.queries import fetch, fetch_run
from focus_runtime.store.database import Database


def kept_by_layer(database: Database, run_id: str) -> dict[int, int]:
    """Pairs that each layer's mask keeps over the whole text, by layer."""
    return {
        row["layer"]: row["causal_pairs"] - row["dropped"]
        for row in fetch(database, "layers", run_id=run_id).to_pylist()
    }


def num_queries(database: Database, run_id: str) -> int:
    """Rows of a run's masks: the tokens of its text.

    Raises:
        NotFoundError: there is no such run.
    """
    return int(fetch_run(database, run_id)["num_tokens"])
