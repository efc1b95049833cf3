"""A new database costs a quarter of a second of migrations: it is made once and copied."""

from __future__ import annotations

import shutil

import pytest

from focus_runtime.store.database import Database


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """The file of a database without a run."""
    path = tmp_path_factory.mktemp("migrated") / "a.duckdb"
    with Database(path).write():
        pass
    return path


@pytest.fixture
def database(migrated, tmp_path):
    return Database(shutil.copy(migrated, tmp_path / "a.duckdb"))
