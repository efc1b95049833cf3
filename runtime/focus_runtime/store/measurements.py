"""What is measured of a stored run later: attention mass, costs of heads, missing links, statistics, projections."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_runtime.store.database import Database
from focus_runtime.store.runs import constant, insert

if TYPE_CHECKING:
    from focus_runtime.explain.missing_links import MissingLinks
    from focus_runtime.measure.attention_mass import LayerAttention
    from focus_runtime.run.random_baseline import RandomGroups
    from focus_runtime.text.tagging import Tags


TABLES = ("attention_mass", "attention_links")


def write_attention(database: Database, run_id: str, layers: list[LayerAttention], num_tokens: int) -> None:
    """Store one measurement in one transaction.

    Args:
        run_id: which run.
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


@dataclass(frozen=True, slots=True)
class HeadCost:
    """A key-value head, with the query heads that share it.

    Attributes:
        estimated: change of the loss in nats per token that full attention in this head alone would make, from the
            derivative; 0 for a head that has it.
        nll: mean loss in nats per token with full attention in this head alone; None where it was not measured.
    """

    layer: int
    head: int
    estimated: float
    nll: float | None


def write_head_costs(
    database: Database, run_id: str, num_tokens: int, nll_full: float, nll_focus: float, costs: Sequence[HeadCost]
) -> None:
    """Store the heads of a run in one transaction.

    Args:
        run_id: which run.
        num_tokens: first tokens of the run that were measured.
        nll_full, nll_focus: mean loss on them in nats per token.
        costs: of every key-value head of every layer with groups.

    Raises:
        StoreError: the database cannot be written; nothing changes.
    """
    rows = [{"run_id": run_id, **asdict(cost)} for cost in costs]
    with database.write() as connection:
        for table in ("head_cost_runs", "head_costs"):
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])
        connection.execute(
            "INSERT INTO head_cost_runs VALUES (?, now(), ?, ?, ?)", [run_id, num_tokens, nll_full, nll_focus]
        )
        if rows:
            insert(connection, "head_costs", pa.Table.from_pylist(rows))


def write_missing_links(
    database: Database, run_id: str, found: MissingLinks, random_keeps: Sequence[bool | None]
) -> None:
    """Store the links of one token in one transaction.

    Args:
        run_id: which run.
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


CAUSES = ("local", "sinks", "grouped", "dropped")


def write_tags(database: Database, run_id: str, tags: Tags) -> None:
    """Store the tags of a run's tokens.

    Args:
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
        run_id: which run.
    """
    with database.write() as connection:
        insert_queries(connection, run_id, queries)


def insert_queries(connection: Any, run_id: str, queries: Mapping[str, Mapping[int, NDArray[np.float64]]]) -> None:
    """The same within a transaction.

    Args:
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


def write_projection(
    database: Database,
    run_id: str,
    layer: int,
    xy: NDArray[np.float64],
    meta: dict[str, Any],
    positions: NDArray[np.int64] | None = None,
) -> str:
    """Store a layer's 2-d coordinates; the K centroids have positions -1 ... -K after the tokens.

    Args:
        run_id: which run.
        layer: layer number, -1 for a map of all layers.
        xy: (T + K, 2), tokens first, then centroids.
        positions: (T,) which tokens these are; the first T of the text when None.
    """
    projection_id = f"{run_id}/{layer}/{meta['method']}-{meta['seed']}"
    tokens = np.arange(xy.shape[0] - meta["num_centroids"]) if positions is None else positions
    position = np.concatenate([tokens, -1 - np.arange(meta["num_centroids"])])
    rows = pa.table(
        {
            "projection_id": pa.array([projection_id] * len(xy)),
            "layer": constant(layer, len(xy), pa.int32()),
            "position": position,
            "x": xy[:, 0].astype(np.float64),
            "y": xy[:, 1].astype(np.float64),
        }
    )
    with database.write() as connection:
        connection.execute("DELETE FROM projections WHERE projection_id = ?", [projection_id])
        connection.execute("DELETE FROM projection_meta WHERE projection_id = ?", [projection_id])
        insert(connection, "projections", rows)
        connection.execute(
            "INSERT INTO projection_meta VALUES (?, ?, ?, ?, ?, ?, ?, now())",
            [
                projection_id,
                run_id,
                layer,
                meta["method"],
                json.dumps(meta["parameters"], sort_keys=True),
                meta["seed"],
                meta["trustworthiness"],
            ],
        )
    return projection_id
