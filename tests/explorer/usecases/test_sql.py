"""The SQL box reads this database and nothing else, writes nothing, and always comes to an end."""

from __future__ import annotations

import shutil
import time

import duckdb
import pytest

from focus_explorer.data.sql_worker import answer
from focus_explorer.errors import InputError
from focus_explorer.usecases.sql import EXAMPLES, SQL_LENGTH, Limits, run_sql
from focus_runtime.store.database import Database

pytestmark = pytest.mark.slow


def problem(service, sql, **limits):
    with pytest.raises(InputError) as caught:
        run_sql(service.database, sql, Limits(**limits))
    return in_one_line(str(caught.value))


def in_one_line(text):
    assert "\n" not in text
    assert "Traceback" not in text
    return text


@pytest.fixture(scope="module")
def answered(service, run_id, tmp_path_factory):
    """What the process of a query answers, made in this one from a copy: starting it takes longer than most queries."""
    copy = shutil.copy(service.database.path, tmp_path_factory.mktemp("sql") / "runs.duckdb")
    return lambda sql: answer({"path": str(copy), "sql": sql, "seconds": 10.0, "rows": 1000, "memory": "512MB"})


@pytest.mark.parametrize("sql", [sql for _, sql in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_every_example_answers(answered, sql):
    found = answered(sql)
    assert found["rows"] or "HAVING" in sql
    assert {len(row) for row in found["rows"]} <= {len(found["columns"])}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM runs",
        "FROM runs;",
        "WITH a AS (SELECT 1) SELECT * FROM a -- end",
        "VALUES (1)",
        "DESCRIBE runs",
        "SHOW TABLES",
    ],
)
def test_anything_that_selects_is_answered(answered, sql):
    assert answered(sql)["rows"]


def test_values_of_every_kind_are_plain(service, run_id):
    found = run_sql(
        service.database,
        "SELECT NULL, 1, 9007199254740993, 1.5::DOUBLE, 'inf'::DOUBLE, 2.25::DECIMAL(4,2), TIMESTAMP '2024-01-02', "
        "'\\x01'::BLOB, [1, 2], {'a': 1}, true, repeat('x', 10000), '<b>'",
    )
    row = found["rows"][0]
    assert row[:6] == [None, 1, "9007199254740993", 1.5, "inf", 2.25]
    assert row[6:11] == ["2024-01-02 00:00:00", "AQ==", "[1, 2]", '{"a": 1}', True]
    assert len(row[11]) == 4000
    assert row[12] == "<b>"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM sniff_csv('{file}')",
        "SELECT * FROM read_json('{file}')",
        "SELECT * FROM read_parquet('https://127.0.0.1:1/x.parquet')",
        "ATTACH '{file}' AS other",
        "COPY runs TO '{target}'",
        "COPY (SELECT 1) TO '{target}'",
        "EXPORT DATABASE '{target}'",
        "IMPORT DATABASE '{target}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '{file}'",
        "PRAGMA enable_external_access=true",
        "PRAGMA version",
        "SET enable_external_access = true",
        "SET threads = 64",
        "RESET lock_configuration",
        "CALL pragma_version()",
        "CHECKPOINT",
        "VACUUM",
        "BEGIN",
        "DROP TABLE runs",
        "DELETE FROM runs",
        "UPDATE runs SET title = 'x'",
        "INSERT INTO run_labels VALUES ('a', '', '', [], NULL)",
        "CREATE TEMP TABLE t AS SELECT 1",
        "CREATE MACRO f() AS 1",
        "WITH x AS (DELETE FROM runs RETURNING *) FROM x",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{target}'",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE runs",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM service",
        "FROM request",
        "SELEC 1",
        "",
        "-- nothing",
        "SELECT nothing FROM runs",
        "SELECT error('two\nlines')",
    ],
)
def test_everything_else_is_refused_in_one_line(answered, tmp_path, sql):
    file, target = tmp_path / "secret.csv", tmp_path / "out"
    file.write_text("a\nsecret-value\n")
    text = in_one_line(answered(sql.format(file=file, target=target))["problem"])
    assert "secret-value" not in text
    assert not target.exists()
    assert answered("SELECT count(*) FROM runs")["rows"][0][0] >= 1


def test_another_database_cannot_be_read_from_select(service, run_id, tmp_path):
    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'secret-value' AS v")
    for sql in (
        f"SELECT * FROM '{other}'",
        f"SELECT * FROM read_duckdb('{other}')",
        f"FROM query('ATTACH ''{other}''')",
    ):
        assert "secret-value" not in problem(service, sql)


def test_an_endless_query_is_stopped(service, run_id):
    started = time.monotonic()
    text = problem(service, "SELECT count(*) FROM range(10000000000000) a, range(10000000) b", seconds=1)
    assert "stopped after 1 second" in text
    assert time.monotonic() - started < 8
    assert run_sql(service.database, "SELECT 1")["rows"] == [[1]]


def test_endless_recursion_is_stopped(service, run_id):
    text = problem(
        service, "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r", seconds=1
    )
    assert "stopped" in text or "memory" in text


def test_a_query_that_needs_too_much_memory_is_refused(service, run_id):
    text = problem(service, "SELECT list(a.range) FROM range(1000000000) a", seconds=20, memory="64MB")
    assert "more than 64MB of memory" in text


def test_rows_and_long_values_are_limited_and_said(service, run_id):
    found = run_sql(service.database, "FROM range(1000000000000)", Limits(rows=7))
    assert [row[0] for row in found["rows"]] == list(range(7))
    assert "first 7 rows" in found["truncated"]
    assert run_sql(service.database, "FROM range(7)", Limits(rows=7))["truncated"] == ""
    found = run_sql(service.database, "SELECT repeat('x', 4000) FROM range(5000)", Limits(rows=5000))
    assert len(found["rows"]) < 1100
    assert "values are long" in found["truncated"]


def test_a_query_that_is_too_long_is_refused(service, run_id):
    assert "characters" in problem(service, "SELECT 1" + " " * SQL_LENGTH)


def test_a_database_that_does_not_exist_yet_reads_as_empty(tmp_path):
    found = run_sql(Database(tmp_path / "new.duckdb"), "SELECT count(*) FROM runs")
    assert found["rows"] == [[0]]
