"""Looking after a database file: is it whole, a copy of one in use, a copy put back, what a damaged one still holds."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from focus_explorer.errors import StoreError
from focus_explorer.progress import Progress, silent
from focus_runtime.errors import StoreBusyError, first_line
from focus_runtime.files import replacing
from focus_runtime.store.connections import sql_string
from focus_runtime.store.database import Database
from focus_runtime.store.schema import MIGRATIONS, applied, apply_migrations

PARTS = ("tokens", "layers", "losses")  # of which every run has rows


@dataclass(slots=True)
class Findings:
    """What a database holds: rows by table that could be read, why others could not, whole runs and broken ones."""

    rows: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return not self.damaged and not self.broken


def check(path: str | Path) -> Findings:
    """Read every value of a database, and look whether every run has its parts."""
    _must_exist(path)
    findings = Findings()
    with Database(path).read(migrates=False) as connection:
        rows = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY table_name").fetchall()
        for (table,) in rows:
            try:
                # a block's checksum is looked at when it is read; the hash reads all columns
                query = f'SELECT count(*), bit_xor(hash(t)) FROM "{table}" t'
                findings.rows[table] = connection.execute(query).fetchall()[0][0]
            except duckdb.Error as error:
                findings.damaged[table] = first_line(error)
        for run_id in _run_ids(connection):
            try:
                found = [_count(connection, table, run_id) for table in PARTS]
            except duckdb.Error:
                found = [0]
            (findings.runs if all(found) else findings.broken).append(run_id)
    return findings


def backup(path: str | Path, target: str | Path) -> int:
    """Copy a database as a whole or not at all, and return the bytes of the copy; others may read it meanwhile."""
    _must_exist(path)
    database = Database(path)
    with replacing(target, sync=True) as part:
        with database.read(migrates=False):  # no writer is at work, so all is in the file
            shutil.copyfile(database.path, part)
        with Database(part).read(migrates=False):  # it opens
            pass
        return part.stat().st_size


def restore(path: str | Path, source: str | Path) -> Path | None:
    """Replace a database by a copy, if that is whole, and return where the earlier one is now, if there was one."""
    if not check(source).whole:
        raise StoreError(f"{source} is damaged", fix="`focus-explorer db repair` saves what can be read of it")
    path = Path(os.path.expanduser(path))
    kept = None
    with replacing(path, sync=True) as part:
        shutil.copyfile(source, part)
        if path.exists():
            try:
                Database(path).wait_until_unused()
            except StoreBusyError:
                raise
            except StoreError:  # it is damaged, and that is why it is replaced
                pass
            kept = path.with_name(f"{path.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
            os.replace(path, kept)
    return kept


def repair(path: str | Path, target: str | Path, progress: Progress = silent) -> Findings:
    """Copy all whole runs and all readable tables of a damaged database, which is only read, into a new one."""
    _must_exist(path)
    if Path(target).exists():
        raise StoreError(f"there is a file {target}", expected="the name of a new one", fix="choose another --out")
    findings = Findings()
    with replacing(target) as part:
        part.unlink(missing_ok=True)
        # the open reader waits for writers, and holds them off
        with duckdb.connect() as connection, Database(path).read(migrates=False) as old:
            done = applied(old)
            connection.execute(f"ATTACH {sql_string(os.path.realpath(os.path.expanduser(path)))} AS old (READ_ONLY)")
            connection.execute(f"ATTACH {sql_string(part)} AS new")
            connection.execute("USE new")
            apply_migrations(connection, done)  # the columns that the rows have; migrated when all are in
            _copy(connection, findings, progress)
            apply_migrations(connection, [name for name in MIGRATIONS if name not in done])
            connection.execute("USE memory")
            connection.execute("DETACH new")
    return findings


def _copy(connection: Any, findings: Findings, progress: Progress) -> None:
    columns = connection.execute(
        "SELECT table_name, bool_or(column_name = 'run_id') FROM duckdb_columns() WHERE database_name = 'old' "
        "AND table_name IN (SELECT table_name FROM duckdb_tables() WHERE database_name = 'old') "
        "AND table_name <> 'schema_migrations' GROUP BY table_name ORDER BY table_name"
    ).fetchall()
    of_runs = [table for table, has_run in columns if has_run]
    runs = [row[0] for row in connection.execute("SELECT run_id FROM old.runs ORDER BY run_id").fetchall()]
    for done, run_id in enumerate(runs):
        progress("Copying runs", done / (len(runs) + 1))
        connection.execute("BEGIN")
        try:
            for table in of_runs:
                connection.execute(
                    f'INSERT INTO new."{table}" BY NAME SELECT * FROM old."{table}" WHERE run_id = ?', [run_id]
                )
            whole = all(_count(connection, f'new"."{table}', run_id) for table in PARTS)
            connection.execute("COMMIT" if whole else "ROLLBACK")
        except duckdb.Error:
            with suppress(duckdb.Error):  # the failed statement may have ended the transaction
                connection.execute("ROLLBACK")
            whole = False
        (findings.runs if whole else findings.broken).append(run_id)
    progress("Copying the rest", len(runs) / (len(runs) + 1))
    for table in (table for table, has_run in columns if not has_run):
        try:
            connection.execute(f'INSERT INTO new."{table}" BY NAME SELECT * FROM old."{table}"')
        except duckdb.Error as error:
            findings.damaged[table] = first_line(error)
        else:
            findings.rows[table] = connection.execute(f'SELECT count(*) FROM new."{table}"').fetchall()[0][0]


def _run_ids(connection: Any) -> list[str]:
    try:
        return [row[0] for row in connection.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall()]
    except duckdb.Error:  # said under `damaged`
        return []


def _count(connection: Any, table: str, run_id: str) -> int:
    found = connection.execute(f'SELECT count(*) FROM "{table}" WHERE run_id = ?', [run_id]).fetchall()
    return int(found[0][0])


def _must_exist(path: str | Path) -> None:
    if not os.path.isfile(os.path.expanduser(path)):
        raise StoreError(f"there is no database {path}", expected="a DuckDB file of Focus Explorer")
