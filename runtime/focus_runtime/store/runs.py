"""Runs in DuckDB: visible only once complete."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_runtime.mask.rule import CAUSES
from focus_runtime.store.database import Database

if TYPE_CHECKING:
    from focus_runtime.run.trace import LayerTrace, PredictedTokens, Timing, Trace


def insert(connection: Any, table: str, rows: pa.Table) -> None:
    """Append rows by the names of their columns, within the connection's transaction."""
    connection.register("incoming", rows)
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


def constant(value: Any, count: int, kind: pa.DataType | None = None) -> pa.Array:
    """A column of equal values.

    Args:
        kind: the column's type; that of the value when None.
    """
    return pa.repeat(pa.scalar(value, type=kind), count)


TITLE_LENGTH = 80


def write_run(database: Database, trace: Trace, *, command: str = "", owner: str | None = None) -> str:
    """Store a whole run in one transaction; the commit makes the run visible.

    Args:
        owner: user it belongs to; None where there are no users.

    Returns:
        The new run's id.

    Raises:
        StoreError: the database cannot be written; nothing of the run is kept.
    """
    run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    with database.write() as connection:
        insert(connection, "tokens", _tokens(run_id, trace))
        for layer in trace.layers:
            insert(connection, "assignments", _assignments(run_id, layer))
            for part, heads in enumerate(layer.heads):
                insert(connection, "masks", _masks(run_id, layer, part))
                if not np.array_equal(heads.membership, layer.membership):
                    insert(connection, "head_assignments", _head_assignments(run_id, layer, part))
        insert(connection, "head_masks", _head_masks(run_id, trace))
        insert(connection, "layers", _layers(run_id, trace))
        insert(connection, "losses", _losses(run_id, trace))
        for mode, predicted in trace.predicted.items():
            insert(connection, "predictions", _predictions(run_id, mode, predicted))
        insert(connection, "timings", _timings(run_id, trace, trace.timings))
        insert(connection, "runs", _run(run_id, trace, command, owner))
    return run_id


def add_timings(database: Database, run_id: str, trace: Trace, timings: Sequence[Timing]) -> None:
    """Store further repeats of a stored run's timings.
    Raises:
        StoreError: the database cannot be written.
    """
    with database.write() as connection:
        insert(connection, "timings", _timings(run_id, trace, timings))


def _predictions(run_id: str, mode: str, predicted: PredictedTokens) -> pa.Table:
    made, count = predicted.predictions, predicted.predictions.ranks.size
    pieces = np.array([predicted.pieces[token_id] for token_id in made.token_ids.ravel().tolist()], dtype=object)
    return pa.table(
        {
            "run_id": constant(run_id, count),
            "mode": constant(mode, count),
            "position": np.arange(1, count + 1),
            "rank": made.ranks.astype(np.int32),
            "token_ids": _lists(made.token_ids.astype(np.int32)),
            "pieces": _lists(pieces.reshape(made.token_ids.shape)),
            "probabilities": _lists(made.probabilities),
        }
    )


def _lists(values: NDArray[Any]) -> pa.Array:
    rows, width = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * width, pa.int32()), pa.array(values.ravel()))


def _run(run_id: str, trace: Trace, command: str, owner: str | None) -> pa.Table:
    info = trace.info
    title = " ".join(trace.tokens.text.split())
    row = {
        "run_id": run_id,
        "created_at": datetime.now(UTC),
        "status": "complete",
        "title": title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1] + "…",
        "config": json.dumps(info["config"], sort_keys=True),
        "versions": json.dumps(info["versions"], sort_keys=True),
        "text_sha256": hashlib.sha256(trace.tokens.text.encode()).hexdigest(),
        "command": command,
        "notes": json.dumps(trace.notes),
        "changes": json.dumps(info["changes"]),
        "added_tokens": json.dumps(info["added_tokens"]),
        "owner": owner,
    }
    keys = (
        "model_id",
        "model_fingerprint",
        "centroids_name",
        "centroids_sha256",
        "num_tokens",
        "special_tokens",
        "device",
        "dtype",
        "backend",
        "requested_backend",
        "seed",
    )
    return pa.Table.from_pylist([row | {key: info[key] for key in keys}])


def _tokens(run_id: str, trace: Trace) -> pa.Table:
    tokens, count = trace.tokens, trace.num_tokens
    return pa.table(
        {
            "run_id": constant(run_id, count),
            "position": np.arange(count),
            "token_id": pa.array(tokens.ids, pa.int64()),
            "piece": tokens.pieces,
            "start_char": pa.array(tokens.starts, pa.int64()),
            "end_char": pa.array(tokens.ends, pa.int64()),
        }
    )


def _assignments(run_id: str, layer: LayerTrace) -> pa.Table:
    probabilities = layer.probabilities
    count = probabilities.shape[0]
    entropy = -(probabilities * np.log(np.clip(probabilities, 1e-30, None))).sum(axis=1)
    return pa.table(
        {
            "run_id": constant(run_id, count),
            "layer": constant(layer.layer, count, pa.int32()),
            "position": np.arange(count),
            "membership": layer.membership,
            "top_group": layer.top_group.astype(np.int32),
            "probabilities": _lists(probabilities),
            "confidence": probabilities.max(axis=1),
            "entropy": entropy.astype(np.float32),
            "routing": _lists(layer.routing),
        }
    )


def _head_masks(run_id: str, trace: Trace) -> pa.Table:
    schema = pa.schema(
        [
            ("run_id", pa.string()),
            ("layer", pa.int32()),
            ("part", pa.int32()),
            ("heads", pa.list_(pa.int32())),
            ("query_heads", pa.bool_()),
            ("top_k", pa.int32()),
            ("window_size", pa.int64()),
            ("full_attention", pa.bool_()),
            ("retained_pairs", pa.float64()),
        ]
    )
    rows = []
    for layer in trace.layers:
        for part, heads in enumerate(layer.heads):
            setting = heads.group.setting
            rows.append(
                {
                    "run_id": run_id,
                    "layer": layer.layer,
                    "part": part,
                    "heads": list(heads.group.heads),
                    "query_heads": heads.group.by_query,
                    "top_k": None if setting.full else setting.top_k,
                    "window_size": None if setting.full else setting.window,
                    "full_attention": setting.full,
                    "retained_pairs": heads.counts.retained_pairs,
                }
            )
    return pa.Table.from_pylist(rows, schema=schema)


def _head_assignments(run_id: str, layer: LayerTrace, part: int) -> pa.Table:
    membership = layer.heads[part].membership
    return pa.table(
        {
            "run_id": constant(run_id, membership.size),
            "layer": constant(layer.layer, membership.size, pa.int32()),
            "part": constant(part, membership.size, pa.int32()),
            "position": np.arange(membership.size),
            "membership": membership,
        }
    )


def _masks(run_id: str, layer: LayerTrace, part: int) -> pa.Table:
    counts = layer.heads[part].counts
    row, column = np.tril_indices(counts.counts.shape[1])
    columns = {cause: counts.counts[number][row, column] for number, cause in enumerate(CAUSES)}
    return pa.table(
        {
            "run_id": constant(run_id, row.size),
            "layer": constant(layer.layer, row.size, pa.int32()),
            "part": constant(part, row.size, pa.int32()),
            "row_block": row.astype(np.int32),
            "col_block": column.astype(np.int32),
            "block_size": constant(counts.block_size, row.size, pa.int64()),
            **columns,
        }
    )


def _layers(run_id: str, trace: Trace) -> pa.Table:
    rows = [
        {
            "run_id": run_id,
            "layer": layer.layer,
            "attention_kind": layer.attention_kind,
            "dominance": layer.dominance,
            "retained_pairs": layer.retained_pairs,
            "attention_mass_retained": layer.attention_mass_retained,
            "sliding_window": layer.sliding_window,
            "column_potential": layer.potential.tolist(),
            "centroids": layer.centroids.tolist(),
        }
        for layer in trace.layers
    ]
    return pa.Table.from_pylist(rows)


def _losses(run_id: str, trace: Trace) -> pa.Table:
    parts = [
        pa.table(
            {
                "run_id": constant(run_id, nll.size),
                "mode": constant(mode, nll.size),
                "position": np.arange(1, nll.size + 1),
                "nll": nll,
            }
        )
        for mode, nll in trace.nll.items()
    ]
    return pa.concat_tables(parts)


def _timings(run_id: str, trace: Trace, timings: Sequence[Timing]) -> pa.Table:
    rows = [
        {
            "run_id": run_id,
            "mode": timing.mode,
            "stage": timing.stage,
            "repeat": timing.repeat,
            "sequence_length": trace.num_tokens,
            "backend": trace.info["backend"] if timing.mode == "focus" else "sdpa",
            "milliseconds": timing.milliseconds,
            "peak_memory_bytes": timing.peak_memory_bytes,
        }
        for timing in timings
    ]
    return pa.Table.from_pylist(rows)


def write_setting(database: Database, row: dict[str, Any]) -> None:
    """Keep one measured setting of a run; measuring it again replaces it."""
    _replace(database, "comparisons", row, ("run_id", "kind", "top_k", "window_size"))


def write_length(database: Database, row: dict[str, Any]) -> None:
    """Keep one measured length of a run's layer; measuring it again replaces it."""
    _replace(database, "crossovers", row, ("run_id", "layer", "tokens"))


def _replace(database: Database, table: str, row: dict[str, Any], key: tuple[str, ...]) -> None:
    same = " AND ".join(f"{name} = ?" for name in key)
    marks = ", ".join("?" for _ in row)
    with database.write() as connection:
        connection.execute(f"DELETE FROM {table} WHERE {same}", [row[name] for name in key])
        connection.execute(
            f"INSERT INTO {table} ({', '.join(row)}, measured_at) VALUES ({marks}, now())", list(row.values())
        )
