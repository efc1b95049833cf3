"""What version 0.2 wrote opens unchanged: a database with a run and one with changes, centroid files and a bundle."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from focus_explorer.exports.bundle.rebuild import rebuild
from focus_explorer.exports.tables.write import write_table
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.runs import list_runs, mask_blocks, run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.processes import Trainings
from focus_runtime.routing.centroid_file import load_centroids
from tests.helpers import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "version_0_2"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
RUN, CHANGED = EXPECTED["run"], EXPECTED["changed"]
TABLES = [name for name in EXPECTED["tables"] if name != "statistics"]  # its last digits depend on the processor


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    path = tmp_path_factory.mktemp("version_0_2") / "runs.duckdb"
    path.write_bytes(gzip.decompress((FOLDER / "runs.duckdb.gz").read_bytes()))
    return Service(path)


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


@pytest.mark.parametrize("run", [RUN, CHANGED])
def test_a_stored_run_has_the_numbers_it_had(service, run):
    summary = run_summary(service.database, run)
    summary.pop("db")
    assert summary.pop("special_tokens") is None  # new since then: what a text began with was not recorded
    assert summary.pop("added_tokens") == []
    assert summary == EXPECTED["summaries"][run]
    assert digest(mask_blocks(service.database, run, 1)) == EXPECTED["masks"][run]
    payload = load_run(service.database, run)
    assert payload["run"].pop("added_tokens") == []
    assert digest(payload) == EXPECTED["payloads"][run]


def test_deleted_runs_stay_deleted(service):
    assert [row["run_id"] for row in list_runs(service.database)] == [CHANGED, RUN]


@pytest.mark.parametrize("name", TABLES)
def test_an_export_has_the_bytes_it_had(service, tmp_path, name):
    path = write_table(service.database, RUN, name, "csv", tmp_path / f"{name}.csv")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == EXPECTED["tables"][name]


def test_a_recorded_training_is_listed(service):
    [row] = Trainings(service).rows()
    assert {name: row[name] for name in EXPECTED["training"]} == EXPECTED["training"]


@pytest.mark.parametrize("name", ["learned.safetensors", "tuned.safetensors"])
def test_centroid_files_load(name):
    centroids, expected = load_centroids(FOLDER / name), EXPECTED["centroids"][name]
    assert centroids.sha256 == expected["sha256"]
    assert centroids.config.to_dict() == expected["config"]
    assert centroids.routers[0].centroids.flatten()[:4].tolist() == expected["first"]
    assert centroids.routers[1].potential.tolist() == expected["potential"]


@pytest.mark.slow
def test_a_bundle_is_rebuilt_from_its_database(service, tmp_path):
    rebuilt = rebuild(service, FOLDER / "bundle.zip", tmp_path / "tables")
    assert rebuilt.again == []  # the run is stored
    differing = [line for line in rebuilt.tables if any(f"/{name}." in line for name in TABLES)]
    assert all("the same cells in other bytes" in line for line in differing)  # they name the version that wrote them
