"""One query of a user's own, in a process of its own: read-only, nothing outside the database, limits on everything.

Run as `python -m focus_explorer.data.sql_worker`, with one JSON object on standard input (path, sql, seconds, rows,
memory) and one on standard output: the result, or `problem`. The process limits the query: its parent ends it when it
takes too long, and the system refuses it more memory than twice DuckDB's limit: values that become Python objects are
not counted by DuckDB. Imports nothing but DuckDB, so that it starts quickly.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import os
import re
import sys
import threading
import time
from typing import Any

import duckdb

CELL_CHARACTERS = 4000
TOTAL_CHARACTERS = 4_000_000
LOCK_WAIT = 5.0
BASE_BYTES = 200_000_000  # of Python, DuckDB and its threads without a query
KINDS = {
    duckdb.StatementType.SELECT: "",
    duckdb.StatementType.MULTI: "PIVOT without a list of values runs as several statements; add IN (...)",
    duckdb.StatementType.EXPLAIN: "EXPLAIN is not answered here",
}
# Nothing can be read but the one database, nothing written, and no statement can change that.
LOCKED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "threads": "2",
    "lock_configuration": "true",
}


class QueryProblemError(Exception):
    """A problem of a query, worded for the person who wrote it."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Columns and rows of a query, or its problem.

    Args:
        request: path, sql, seconds (time limit), rows (row limit), memory (such as "512MB").

    Returns:
        columns, types, rows (JSON values), truncated ("" or why rows or characters are missing), seconds; or problem.
    """
    try:
        connection = _connect(request["path"], request["memory"])
    except duckdb.Error as error:
        return {"problem": _clear(str(error), request)}
    timer = threading.Timer(request["seconds"], connection.interrupt)
    timer.daemon = True
    try:
        statement = _one_statement(connection, request["sql"])
        timer.start()
        started = time.perf_counter()
        result = _read(connection.sql(statement), request["rows"])
        return result | {"seconds": time.perf_counter() - started}
    except QueryProblemError as problem:
        return {"problem": str(problem)}
    except (duckdb.Error, MemoryError, RuntimeError) as error:  # RuntimeError: how the binding reports an interrupt
        return {"problem": _clear(str(error), request)}
    finally:
        timer.cancel()


def _connect(path: str, memory: str) -> duckdb.DuckDBPyConnection:
    deadline = time.monotonic() + LOCK_WAIT
    while True:
        try:
            return duckdb.connect(path, read_only=True, config=LOCKED | {"memory_limit": memory})
        except duckdb.IOException as error:
            if "lock" not in str(error).lower() or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _one_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The one SELECT of a text."""
    statements = connection.extract_statements(sql)
    if not statements:
        raise QueryProblemError("there is no query; expected one SELECT statement")
    if len(statements) > 1:
        raise QueryProblemError(f"there are {len(statements)} statements; expected one SELECT statement")
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        reason = KINDS.get(kind, f"{kind.name} is not allowed")
        raise QueryProblemError(f"{reason}; expected one SELECT statement, because the database is only read here")
    return str(statements[0].query)


def _read(relation: Any, most: int) -> dict[str, Any]:
    fetched = relation.limit(most + 1).fetchall()  # in memory at once, below the memory limit
    rows: list[list[Any]] = []
    characters, cut = 0, ""
    if len(fetched) > most:
        cut = f"only the first {most:,} rows are shown; add LIMIT, WHERE or GROUP BY to see others"
    for row in fetched[:most]:
        rows.append([_plain(value) for value in row])
        characters += sum(len(value) for value in rows[-1] if isinstance(value, str))
        if characters > TOTAL_CHARACTERS:
            cut = f"only the first {len(rows):,} rows are shown, because the values are long; choose fewer columns"
            break
    return {
        "columns": relation.columns,
        "types": [str(kind) for kind in relation.types],
        "rows": rows,
        "truncated": cut,
    }


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value if not isinstance(value, int) or abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, bytes):
        value = base64.b64encode(value[:CELL_CHARACTERS]).decode()
    nested = isinstance(value, list | tuple | dict)
    text = json.dumps(value, ensure_ascii=False, default=str) if nested else str(value)
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


def _clear(message: str, request: dict[str, Any]) -> str:
    """An error message of DuckDB in one line."""
    lowered = message.lower()
    if "interrupt" in lowered:
        return f"the query was stopped after {request['seconds']:g} seconds; make it smaller, for example with WHERE"
    if "out of memory" in lowered or "bad allocation" in lowered or not message:
        return f"the query needs more than {request['memory']} of memory; make it smaller, for example with WHERE"
    if "file system operations are disabled" in lowered or "external extensions is disabled" in lowered:
        return "files, other databases and extensions cannot be used here; expected a query of this database's tables"
    if "lock" in lowered and "io error" in lowered:
        return "the database is being written right now; try again in a moment"
    lines = [line.strip() for line in message.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("LINE ", "^"))]
    return re.sub(r"^\w+ Error: ", "", " ".join(kept)).replace(str(request["path"]), "the database")[:400]


def limit_resources(request: dict[str, Any]) -> None:
    """Limit memory and processor time of this process, where the system can."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    size = re.fullmatch(r"(\d+)MB", request["memory"])
    if size is not None:
        most = 2 * int(size[1]) * 1_000_000 + BASE_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    seconds = 2 * int(request["seconds"]) + 10  # of two threads
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def main() -> None:
    """Answer the question on standard input."""
    request = json.loads(sys.stdin.buffer.read())
    limit_resources(request)
    reply = json.dumps(answer(request), ensure_ascii=False, default=str)
    sys.stdout.buffer.write(reply.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
    os._exit(0)  # a query that was interrupted may still be winding down


if __name__ == "__main__":
    main()
