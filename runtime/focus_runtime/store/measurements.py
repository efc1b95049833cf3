"""What is measured of a stored run later: attention mass, costs of heads, missing links, statistics, projections.

Every function writes one measurement of a run in one transaction, in place of an earlier one.
"""

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
from focus_runtime.store.runs import assignments, head_assignments, insert, replace, rows_of

if TYPE_CHECKING:
    from focus_runtime.explain.missing_links import MissingLinks
    from focus_runtime.measure.attention_mass import LayerAttention
    from focus_runtime.run.random_baseline import RandomGroups
    from focus_runtime.text.tagging import Tags

CAUSES = ("local", "sinks", "grouped", "dropped")


def write_attention(database: Database, run_id: str, layers: list[LayerAttention], num_tokens: int) -> None:
    """Attention mass and strongest links by head, of the first tokens of the run."""
    mass = pa.concat_tables([_mass(run_id, layer, num_tokens) for layer in layers])
    links = pa.concat_tables([_links(run_id, layer, kind) for layer in layers for kind in layer.links])
    with database.write() as connection:
        _insert_queries(connection, run_id, {"focus": {layer.layer: layer.queries for layer in layers}})
        replace(connection, "attention_mass", {"run_id": run_id}, mass)
        replace(connection, "attention_links", {"run_id": run_id}, links)


def _mass(run_id: str, layer: LayerAttention, num_tokens: int) -> pa.Table:
    heads = layer.shares.shape[0]
    causes = dict(zip(CAUSES, layer.shares.T, strict=True))
    grouped, dropped = causes["grouped"], causes["dropped"]
    far = grouped + dropped
    distant = pa.array(grouped / np.where(far > 0, far, 1.0), mask=far <= 0)
    key = {"run_id": run_id, "layer": layer.layer, "num_tokens": num_tokens}
    return rows_of(heads, **key, head=np.arange(heads), **causes, mass_kept=1.0 - dropped, distant_mass_kept=distant)


def _links(run_id: str, layer: LayerAttention, kind: str) -> pa.Table:
    columns = dict(zip(("query", "key", "probability"), layer.links[kind], strict=True))
    head, rank = np.nonzero(columns["probability"] > 0)
    chosen = {name: values[head, rank] for name, values in columns.items()}
    return rows_of(head.size, run_id=run_id, layer=layer.layer, head=head, kind=kind, rank=rank, **chosen)


@dataclass(frozen=True, slots=True)
class HeadCost:
    """What full attention in one key-value head, with its query heads, would make of the loss in nats per token."""

    layer: int
    head: int
    estimated: float  # change of the loss, from the derivative; 0 for a head that has full attention
    nll: float | None  # mean loss; None where it was not measured


def write_head_costs(
    database: Database, run_id: str, num_tokens: int, nll_full: float, nll_focus: float, costs: Sequence[HeadCost]
) -> None:
    """Costs of every key-value head of every layer with groups, and mean losses in nats of the first tokens."""
    run = {"run_id": run_id, "num_tokens": num_tokens, "nll_full": nll_full, "nll_focus": nll_focus}
    with database.write() as connection:
        replace(connection, "head_cost_runs", {"run_id": run_id}, [run | {"measured_at": datetime.now(UTC)}])
        replace(connection, "head_costs", {"run_id": run_id}, [{"run_id": run_id, **asdict(cost)} for cost in costs])


def write_missing_links(
    database: Database, run_id: str, found: MissingLinks, random_keeps: Sequence[bool | None]
) -> None:
    """The links of one token, with whether random centroids would have kept each; None where that is unknown."""
    key = {"run_id": run_id, "token": found.token}
    of_token = ("nll_full", "nll_focus", "nll_together", "dropped_pairs")
    explained = key | {name: getattr(found, name) for name in of_token} | {"measured_at": datetime.now(UTC)}
    rows = [
        key | {"rank": rank, **asdict(link), "random_keeps": kept}
        for rank, (link, kept) in enumerate(zip(found.links, random_keeps, strict=True))
    ]
    with database.write() as connection:
        replace(connection, "explained_tokens", key, [explained])
        replace(connection, "missing_links", key, rows)


def write_tags(database: Database, run_id: str, tags: Tags) -> None:
    """Part of speech, relation and sentence of every token."""
    count = len(tags.pos)
    rows = rows_of(count, run_id=run_id, position=np.arange(count), pos=tags.pos, dep=tags.dep, sentence=tags.sentence)
    with database.write() as connection:
        replace(connection, "token_tags", {"run_id": run_id}, rows)
        connection.execute("INSERT OR REPLACE INTO taggings VALUES (?, ?, ?)", [run_id, tags.tagger, datetime.now(UTC)])


def write_baseline(database: Database, run_id: str, random: RandomGroups) -> None:
    """Groups that random centroids gave the tokens; attention under centroids of another seed is deleted."""
    parts, own = [], []
    for groups in random.layers:
        for part, heads in enumerate(groups.heads):
            if not heads.group.setting.full and not np.array_equal(heads.membership, groups.membership):
                own.append(head_assignments(run_id, groups.layer, part, heads.membership))
        parts.append(assignments(run_id, groups))
    with database.write() as connection:
        connection.execute(
            "DELETE FROM attention_queries WHERE run_id = ? AND centroids = 'random' "
            "AND run_id IN (SELECT run_id FROM baselines WHERE seed <> ?)",
            [run_id, random.seed],
        )
        replace(connection, "baseline_assignments", {"run_id": run_id}, pa.concat_tables(parts))
        replace(connection, "baseline_head_assignments", {"run_id": run_id}, pa.concat_tables(own) if own else [])
        connection.execute(
            "INSERT OR REPLACE INTO baselines VALUES (?, ?, ?, ?, ?)",
            [run_id, random.seed, random.balanced_on, random.perplexity, datetime.now(UTC)],
        )


def write_attention_queries(
    database: Database, run_id: str, queries: Mapping[str, Mapping[int, NDArray[np.float64]]]
) -> None:
    """Where full attention of single queries goes: `focus` or `random` -> layer -> (n, 4) shares by `CAUSES`."""
    with database.write() as connection:
        _insert_queries(connection, run_id, queries)


def _insert_queries(connection: Any, run_id: str, queries: Mapping[str, Mapping[int, NDArray[np.float64]]]) -> None:
    for centroids, layers in queries.items():
        key = {"run_id": run_id, "centroids": centroids}
        tables = []
        for layer, shares in layers.items():
            columns = dict(zip(CAUSES, shares.T, strict=True))
            tables.append(rows_of(len(shares), **key, layer=layer, position=np.arange(len(shares)), **columns))
        replace(connection, "attention_queries", key, pa.concat_tables(tables) if tables else [])


def write_projection(
    database: Database,
    run_id: str,
    layer: int,
    xy: NDArray[np.float64],
    meta: dict[str, Any],
    positions: NDArray[np.int64] | None = None,
) -> str:
    """Store the (T + K, 2) coordinates of a layer, or of a map of all layers (-1), and return the projection's id.

    The T tokens are those at `positions`, or the first; the K centroids after them have positions -1 ... -K.
    """
    projection_id = f"{run_id}/{layer}/{meta['method']}-{meta['seed']}"
    tokens = np.arange(xy.shape[0] - meta["num_centroids"]) if positions is None else positions
    position = np.concatenate([tokens, -1 - np.arange(meta["num_centroids"])])
    rows = rows_of(
        len(xy), projection_id=projection_id, layer=layer, position=position, x=xy[:, 0].copy(), y=xy[:, 1].copy()
    )
    described = {
        "projection_id": projection_id,
        "run_id": run_id,
        "layer": layer,
        "method": meta["method"],
        "parameters": json.dumps(meta["parameters"], sort_keys=True),
        "seed": meta["seed"],
        "trustworthiness": meta["trustworthiness"],
        "created_at": datetime.now(UTC),
    }
    with database.write() as connection:
        replace(connection, "projections", {"projection_id": projection_id}, rows)
        insert(connection, "projection_meta", [described], or_replace=True)
    return projection_id
