"""A user's own SQL over the database: one SELECT, in a locked process of its own, stopped when it takes too long."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from focus_explorer.errors import InputError
from focus_explorer.views.payloads.runs import SqlResultPayload
from focus_runtime.store.connections import let_writers_in
from focus_runtime.store.database import Database

SQL_LENGTH = 20_000
GRACE_SECONDS = 8.0  # to start, to wait for a lock and to wind down, before the process is ended from outside
_PROJECT = Path(__file__).parents[2]
_BUSY = threading.BoundedSemaphore(2)
_PLACES = threading.BoundedSemaphore(6)  # at work or waiting: whoever waits holds a thread that answers the page

EXAMPLES: tuple[tuple[str, str], ...] = (
    (
        "Runs by perplexity",
        """SELECT r.run_id, r.title, r.num_tokens,
    exp(avg(l.nll) FILTER (l.mode = 'full')) AS perplexity_full,
    exp(avg(l.nll) FILTER (l.mode = 'focus')) AS perplexity_focus
FROM runs r JOIN losses l USING (run_id)
GROUP BY ALL
ORDER BY perplexity_focus / perplexity_full""",
    ),
    (
        "Most lopsided layers",
        """SELECT run_id, layer, dominance, retained_pairs
FROM layers
ORDER BY dominance DESC
LIMIT 20""",
    ),
    (
        "Tokens Focus hurts most",
        """WITH nll AS (
    PIVOT losses ON mode IN ('full', 'focus') USING max(nll) GROUP BY run_id, position)
SELECT t.run_id, t.position, t.piece, n.full AS nll_full, n.focus AS nll_focus, n.focus - n.full AS difference
FROM nll n JOIN tokens t USING (run_id, position)
ORDER BY difference DESC
LIMIT 50""",
    ),
    (
        "Words that change group least",
        """SELECT t.piece, count(DISTINCT t.position) AS uses,
    count(DISTINCT (a.layer, a.top_group)) / count(DISTINCT a.layer) AS groups_per_layer
FROM assignments a JOIN tokens t USING (run_id, position)
WHERE a.run_id = (SELECT max(run_id) FROM runs)
GROUP BY t.piece
HAVING uses >= 5
ORDER BY groups_per_layer, uses DESC
LIMIT 50""",
    ),
    (
        "Time of every stage",
        """SELECT run_id, mode, stage, median(milliseconds) AS median_ms, count(*) AS repeats
FROM timings
GROUP BY ALL
ORDER BY run_id DESC, stage, mode""",
    ),
    (
        "Every table and column",
        """SELECT table_name, column_name, data_type
FROM information_schema.columns
ORDER BY table_name, ordinal_position""",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of one query: seconds, rows shown, and memory as DuckDB writes it."""

    seconds: float = 10.0
    rows: int = 1000
    memory: str = "512MB"


def run_sql(database: Database, sql: str, limits: Limits | None = None) -> SqlResultPayload:
    """Answer one SELECT statement; `truncated` says what is missing."""
    limits = limits or Limits()
    if not isinstance(sql, str) or not sql.strip():
        raise InputError("there is no query", expected="one SELECT statement")
    if len(sql) > SQL_LENGTH:
        raise InputError(f"the query has {len(sql):,} characters", expected=f"at most {SQL_LENGTH:,}")
    with database.read():  # a missing file is made, an older one migrated
        pass
    if not _PLACES.acquire(blocking=False):
        raise InputError("six other queries are running or waiting", fix="try again in a moment")
    try:
        if not _BUSY.acquire(timeout=limits.seconds):
            raise InputError("two other queries are still running", fix="try again in a moment")
        try:
            let_writers_in(database.path, limits.seconds)  # queries in a row would keep them out
            result = _execute(database, sql, limits)
        finally:
            _BUSY.release()
    finally:
        _PLACES.release()
    if "problem" in result:
        raise InputError(result["problem"])
    return cast(SqlResultPayload, result)


def _execute(database: Database, sql: str, limits: Limits) -> dict[str, Any]:
    request = asdict(limits) | {"path": str(database.path.absolute()), "sql": sql}
    command = [sys.executable, "-m", "focus_explorer.data.sql_worker"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=limits.seconds + GRACE_SECONDS,
            cwd=_PROJECT,
            env={},
            check=False,  # nothing of the server's environment goes along
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"the query was stopped after {limits.seconds:g} seconds", fix="make it smaller, for example with WHERE"
        ) from error
    except OSError as error:
        raise InputError(f"the query cannot be run: {error.strerror}", fix="try again") from error
    if done.returncode != 0 or not done.stdout:
        raise InputError("the query ended without an answer", fix="make it smaller, for example with WHERE")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
