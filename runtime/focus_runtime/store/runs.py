"""Runs in DuckDB: visible only once complete."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_runtime.mask.rule import CAUSES
from focus_runtime.store.database import Database

if TYPE_CHECKING:
    from focus_runtime.measure.loss import Predictions
    from focus_runtime.run.trace import LayerGroups, LayerTrace, Timing, Trace

TITLE_LENGTH = 80
MEASURED = {  # tables of what is measured again, and what names a row
    "comparisons": ("run_id", "kind", "top_k", "window_size"),
    "crossovers": ("run_id", "layer", "tokens"),
}


def rows_of(count: int, /, **columns: Any) -> pa.Table:
    """A table of `count` rows; a single value stands in every row."""
    return pa.table({name: pa.repeat(own, count) if np.isscalar(own) else own for name, own in columns.items()})


def insert(connection: Any, table: str, rows: pa.Table | list[dict[str, Any]], *, or_replace: bool = False) -> None:
    """Append rows by the names of their columns; `or_replace`: rows of the same primary key make place."""
    if not len(rows):
        return
    connection.register("incoming", rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows))
    verb = "INSERT OR REPLACE" if or_replace else "INSERT"
    connection.execute(f"{verb} INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


def replace(connection: Any, table: str, key: dict[str, Any], rows: pa.Table | list[dict[str, Any]]) -> None:
    """Put rows in place of those with the same key."""
    same = " AND ".join(f"{name} = ?" for name in key)
    connection.execute(f"DELETE FROM {table} WHERE {same}", list(key.values()))
    insert(connection, table, rows)


def new_id() -> str:
    """Identifies a run, training or corpus; later ones sort last."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def write_run(database: Database, trace: Trace, *, command: str = "", owner: str | None = None) -> str:
    """Store a whole run in one transaction, whose commit makes it visible; returns its id. Without users: no owner."""
    run_id = new_id()
    with database.write() as connection:
        insert(connection, "tokens", _tokens(run_id, trace))
        for layer in trace.layers:
            vectors = {"probabilities": _lists(layer.probabilities), "routing": _lists(layer.routing)}
            insert(connection, "assignments", assignments(run_id, layer, **vectors))
            for part, heads in enumerate(layer.heads):
                insert(connection, "masks", _masks(run_id, layer, part))
                if not np.array_equal(heads.membership, layer.membership):
                    own = head_assignments(run_id, layer.layer, part, heads.membership)
                    insert(connection, "head_assignments", own)
            insert(connection, "head_masks", _head_masks(run_id, layer))
        insert(connection, "layers", [_layer(run_id, layer) for layer in trace.layers])
        for mode, nll in trace.nll.items():
            positions = np.arange(1, nll.size + 1)
            insert(connection, "losses", rows_of(nll.size, run_id=run_id, mode=mode, position=positions, nll=nll))
        for mode, predictions in trace.predicted.items():
            insert(connection, "predictions", _predictions(run_id, mode, predictions, trace.pieces))
        insert(connection, "timings", _timings(run_id, trace, trace.timings))
        insert(connection, "runs", [_run(run_id, trace, command, owner)])
    return run_id


def add_timings(database: Database, run_id: str, trace: Trace, timings: Sequence[Timing]) -> None:
    """Store further repeats of a stored run's timings."""
    with database.write() as connection:
        insert(connection, "timings", _timings(run_id, trace, timings))


def _run(run_id: str, trace: Trace, command: str, owner: str | None) -> dict[str, Any]:
    info = trace.info
    title = " ".join(trace.tokens.text.split())
    return info | {
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


def _tokens(run_id: str, trace: Trace) -> pa.Table:
    tokens, count = trace.tokens, trace.num_tokens
    return rows_of(
        count,
        run_id=run_id,
        position=np.arange(count),
        token_id=tokens.ids,
        piece=tokens.pieces,
        start_char=tokens.starts,
        end_char=tokens.ends,
    )


def assignments(run_id: str, groups: LayerGroups, **more: Any) -> pa.Table:
    """Groups of every token in one layer."""
    count = groups.membership.size
    return rows_of(
        count,
        run_id=run_id,
        layer=groups.layer,
        position=np.arange(count),
        membership=groups.membership,
        top_group=groups.top_group,
        confidence=groups.probabilities.max(axis=1),
        entropy=groups.entropy,
        **more,
    )


def _head_masks(run_id: str, layer: LayerTrace) -> list[dict[str, Any]]:
    rows = []
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
    return rows


def head_assignments(run_id: str, layer: int, part: int, membership: NDArray[np.int64]) -> pa.Table:
    """Groups of heads whose top-k is not the configuration's."""
    count = membership.size
    return rows_of(count, run_id=run_id, layer=layer, part=part, position=np.arange(count), membership=membership)


def _masks(run_id: str, layer: LayerTrace, part: int) -> pa.Table:
    counts = layer.heads[part].counts
    row, column = np.tril_indices(counts.counts.shape[1])
    return rows_of(
        row.size,
        run_id=run_id,
        layer=layer.layer,
        part=part,
        row_block=row,
        col_block=column,
        block_size=counts.block_size,
        **{cause: counts.counts[number][row, column] for number, cause in enumerate(CAUSES)},
    )


def _layer(run_id: str, layer: LayerTrace) -> dict[str, Any]:
    return {
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


def _predictions(run_id: str, mode: str, made: Predictions, texts: dict[int, str]) -> pa.Table:
    count = made.ranks.size
    pieces = np.array([texts[token_id] for token_id in made.token_ids.ravel().tolist()], dtype=object)
    return rows_of(
        count,
        run_id=run_id,
        mode=mode,
        position=np.arange(1, count + 1),
        rank=made.ranks,
        token_ids=_lists(made.token_ids),
        pieces=_lists(pieces.reshape(made.token_ids.shape)),
        probabilities=_lists(made.probabilities),
    )


def _lists(values: NDArray[Any]) -> pa.Array:
    rows, width = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * width, pa.int32()), pa.array(values.ravel()))


def _timings(run_id: str, trace: Trace, timings: Sequence[Timing]) -> list[dict[str, Any]]:
    return [
        {
            "run_id": run_id,
            "sequence_length": trace.num_tokens,
            "backend": trace.info["backend"] if timing.mode == "focus" else "sdpa",
            **asdict(timing),
        }
        for timing in timings
    ]


def write_measured(database: Database, table: str, row: dict[str, Any]) -> None:
    """Keep one measured setting or length of a run, a row of a table of `MEASURED`, in place of an earlier one."""
    key = {name: row[name] for name in MEASURED[table]}
    with database.write() as connection:
        replace(connection, table, key, [row | {"measured_at": datetime.now(UTC)}])
