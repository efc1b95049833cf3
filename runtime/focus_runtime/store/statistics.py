"""What statistics need beyond a run itself -> rows: tags, groups of random centroids, attention by query.

Measuring again replaces what was stored before.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_runtime.store.arrow import constant, insert
from focus_runtime.store.database import Database

if TYPE_CHECKING:
    from focus_runtime.text.tagging import Tags

if TYPE_CHECKING:
    from focus_runtime.run.random_baseline import RandomGroups

CAUSES = ("local", "sinks", "grouped", "dropped")


def write_tags(database: Database, run_id: str, tags: Tags) -> None:
    """Store the tags of a run's tokens.

    Args:
        database: the store.
        run_id: which run.
        tags: one of each for every token.
    """
    count = len(tags.pos)
    rows = pa.table(
        {
            "run_id": constant(run_id, count),
            "position": np.arange(count),
            "pos": tags.pos,
            "dep": tags.dep,
            "sentence": tags.sentence,
        }
    )
    with database.write() as connection:
        _replace(connection, "token_tags", run_id, rows)
        connection.execute("INSERT OR REPLACE INTO taggings VALUES (?, ?, ?)", [run_id, tags.tagger, datetime.now(UTC)])


def write_baseline(database: Database, run_id: str, random: RandomGroups) -> None:
    """Store the groups random centroids gave a run's tokens; attention under centroids of another seed is deleted.

    Args:
        database: the store.
        run_id: which run.
        random: (T,) groups of every layer.
    """
    parts, own = [], []
    for groups in random.layers:
        for part, heads in enumerate(groups.heads):
            if not heads.group.setting.full and not np.array_equal(heads.membership, groups.membership):
                own.append(_own_groups(run_id, groups.layer, part, heads.membership))
        count = groups.membership.size
        parts.append(
            pa.table(
                {
                    "run_id": constant(run_id, count),
                    "layer": constant(groups.layer, count, pa.int32()),
                    "position": np.arange(count),
                    "membership": groups.membership,
                    "top_group": groups.top_group.astype(np.int32),
                    "confidence": groups.probabilities.max(axis=1),
                    "entropy": groups.entropy,
                }
            )
        )
    with database.write() as connection:
        connection.execute(
            "DELETE FROM attention_queries WHERE run_id = ? AND centroids = 'random' "
            "AND run_id IN (SELECT run_id FROM baselines WHERE seed <> ?)",
            [run_id, random.seed],
        )
        _replace(connection, "baseline_assignments", run_id, pa.concat_tables(parts))
        connection.execute("DELETE FROM baseline_head_assignments WHERE run_id = ?", [run_id])
        for rows in own:
            insert(connection, "baseline_head_assignments", rows)
        connection.execute(
            "INSERT OR REPLACE INTO baselines VALUES (?, ?, ?, ?, ?)",
            [run_id, random.seed, random.balanced_on, random.perplexity, datetime.now(UTC)],
        )


def _own_groups(run_id: str, layer: int, part: int, membership: NDArray[np.int64]) -> pa.Table:
    count = membership.size
    return pa.table(
        {
            "run_id": constant(run_id, count),
            "layer": constant(layer, count, pa.int32()),
            "part": constant(part, count, pa.int32()),
            "position": np.arange(count),
            "membership": membership,
        }
    )


def write_attention_queries(
    database: Database, run_id: str, queries: Mapping[str, Mapping[int, NDArray[np.float64]]]
) -> None:
    """Store where full attention of single queries goes, in a transaction of its own; see `insert_queries`.

    Args:
        database: the store.
        run_id: which run.
        queries: as in `insert_queries`.
    """
    with database.write() as connection:
        insert_queries(connection, run_id, queries)


def insert_queries(connection: Any, run_id: str, queries: Mapping[str, Mapping[int, NDArray[np.float64]]]) -> None:
    """The same within a transaction.

    Args:
        connection: open for writing.
        run_id: which run.
        queries: `focus` or `random` -> layer -> (n, 4) shares: local, sinks, grouped, dropped.
    """
    for centroids, layers in queries.items():
        connection.execute("DELETE FROM attention_queries WHERE run_id = ? AND centroids = ?", [run_id, centroids])
        for layer, shares in layers.items():
            count = len(shares)
            columns = {name: shares[:, number] for number, name in enumerate(CAUSES)}
            rows = {
                "run_id": constant(run_id, count),
                "centroids": constant(centroids, count),
                "layer": constant(layer, count, pa.int32()),
                "position": np.arange(count),
            }
            insert(connection, "attention_queries", pa.table(rows | columns))


def _replace(connection: Any, table: str, run_id: str, rows: pa.Table) -> None:
    connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])
    insert(connection, table, rows)
