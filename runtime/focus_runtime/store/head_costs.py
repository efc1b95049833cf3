"""What the mask costs head by head -> rows. Measuring a run again replaces what was stored before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from focus_runtime.store.arrow import insert
from focus_runtime.store.database import Database


@dataclass(frozen=True, slots=True)
class HeadCost:
    """A key-value head, with the query heads that share it.

    Attributes:
        layer, head: layer number; key-value head.
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
        database: the store.
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
