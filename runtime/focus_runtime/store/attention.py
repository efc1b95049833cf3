"""Where full attention goes under a run's mask -> rows. Measuring again replaces what was stored before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from focus_runtime.measure.attention_links import LayerAttention
from focus_runtime.store.arrow import constant, insert
from focus_runtime.store.database import Database
from focus_runtime.store.statistics import insert_queries

TABLES = ("attention_mass", "attention_links")


def write_attention(database: Database, run_id: str, layers: list[LayerAttention], num_tokens: int) -> None:
    """Store one measurement in one transaction.

    Args:
        database: the store.
        run_id: which run.
        layers: measurements of every layer.
        num_tokens: first tokens of the run that were measured.

    Raises:
        StoreError: the database cannot be written; nothing changes.
    """
    mass = pa.concat_tables([_mass(run_id, layer, num_tokens) for layer in layers])
    links = pa.concat_tables([_links(run_id, layer, kind) for layer in layers for kind in layer.links])
    queries = {"focus": {layer.layer: layer.queries for layer in layers}}
    with database.write() as connection:
        insert_queries(connection, run_id, queries)
        for table, rows in zip(TABLES, (mass, links), strict=True):
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])
            insert(connection, table, rows)


def _mass(run_id: str, layer: LayerAttention, num_tokens: int) -> pa.Table:
    heads = layer.shares.shape[0]
    local, sinks, grouped, dropped = layer.shares.T
    far = grouped + dropped
    return pa.table(
        {
            "run_id": constant(run_id, heads),
            "layer": constant(layer.layer, heads, pa.int32()),
            "head": np.arange(heads, dtype=np.int32),
            "num_tokens": constant(num_tokens, heads, pa.int64()),
            "local": local,
            "sinks": sinks,
            "grouped": grouped,
            "dropped": dropped,
            "mass_kept": 1.0 - dropped,
            "distant_mass_kept": pa.array(grouped / np.where(far > 0, far, 1.0), mask=far <= 0),
        }
    )


def _links(run_id: str, layer: LayerAttention, kind: str) -> pa.Table:
    query, key, probability = layer.links[kind]
    head, rank = np.nonzero(probability > 0)
    return pa.table(
        {
            "run_id": constant(run_id, head.size),
            "layer": constant(layer.layer, head.size, pa.int32()),
            "head": head.astype(np.int32),
            "kind": constant(kind, head.size),
            "rank": rank.astype(np.int32),
            "query": query[head, rank],
            "key": key[head, rank],
            "probability": probability[head, rank],
        }
    )
