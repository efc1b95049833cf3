"""Which masks of a run can be exported, and how large they are."""

from __future__ import annotations

import json

from focus_explorer.data.parts import PartPairs, named_part, part_pairs
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.usecases.runs import layer_parts
from focus_runtime.store.database import Database


def kept_by_layer(database: Database, run_id: str) -> dict[int, int]:
    """Pairs that each layer's mask keeps over the whole text, by layer; the mean over its heads where they differ."""
    return {
        row["layer"]: row["causal_pairs"] - row["dropped"]
        for row in fetch(database, "layers", run_id=run_id).to_pylist()
    }


def pairs_by_part(database: Database, run_id: str) -> dict[int, tuple[PartPairs, ...]]:
    """Heads of equal settings with the pairs of their mask over the whole text, by layer.

    Raises:
        NotFoundError: there is no such run.
    """
    config = json.loads(fetch_run(database, run_id)["config"])
    return part_pairs(config, fetch(database, "part_pairs", run_id=run_id))


def checked_head(database: Database, run_id: str, layer: int, head: int | None) -> int | None:
    """The head whose mask is meant; None where the heads of the layer are alike.

    Args:
        database: has the run.
        run_id: of the run.
        layer: one of its layers.
        head: key-value head, or query head where the heads of a key-value head differ.

    Raises:
        InputError: the layer has no such head, or its heads differ and none was named.
    """
    parts = layer_parts(database, fetch_run(database, run_id))[layer]
    named_part(parts, layer, head, "choose one of them")
    return head if len(parts) > 1 else None


def num_queries(database: Database, run_id: str) -> int:
    """Rows of a run's masks: the tokens of its text.

    Raises:
        NotFoundError: there is no such run.
    """
    return int(fetch_run(database, run_id)["num_tokens"])
