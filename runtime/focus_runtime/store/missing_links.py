"""Dropped pairs that explain a token's loss -> rows. Explaining a token again replaces what was stored before."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from focus_runtime.explain.missing_links import MissingLinks
from focus_runtime.store.arrow import insert
from focus_runtime.store.database import Database


def write_missing_links(
    database: Database, run_id: str, found: MissingLinks, random_keeps: Sequence[bool | None]
) -> None:
    """Store the links of one token in one transaction.

    Args:
        database: the store.
        run_id: which run.
        found: links of one token.
        random_keeps: for each link whether random centroids would have kept the pair; None where that is unknown.

    Raises:
        StoreError: the database cannot be written; nothing changes.
    """
    token = found.token
    rows = [
        {
            "run_id": run_id,
            "token": token,
            "rank": rank,
            "layer": link.layer,
            "head": link.head,
            "query": link.query,
            "key": link.key,
            "probability": link.probability,
            "predicted": link.predicted,
            "nll": link.nll,
            "random_keeps": kept,
        }
        for rank, (link, kept) in enumerate(zip(found.links, random_keeps, strict=True))
    ]
    with database.write() as connection:
        for table in ("explained_tokens", "missing_links"):
            connection.execute(f"DELETE FROM {table} WHERE run_id = ? AND token = ?", [run_id, token])
        connection.execute(
            "INSERT INTO explained_tokens VALUES (?, ?, now(), ?, ?, ?, ?)",
            [run_id, token, found.nll_full, found.nll_focus, found.nll_together, found.dropped_pairs],
        )
        if rows:
            insert(connection, "missing_links", pa.Table.from_pylist(rows))
