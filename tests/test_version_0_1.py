"""What version 0.1 wrote opens unchanged: a database, centroid files and a bundle; links: tests/browser."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys

import pytest

from focus_explorer.exports.bundle.rebuild import rebuild
from focus_explorer.exports.tables.write import write_table
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.runs import list_runs, mask_blocks, run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.processes import Trainings
from focus_runtime.routing.centroid_file import load_centroids
from tests.helpers import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "version_0_1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
RUN = EXPECTED["run"]
INTERVAL = {"delta_low": -0.06011779558445726, "delta_high": 0.023661925111498134}  # which was too narrow
TABLES = [name for name in EXPECTED["tables"] if name != "statistics"]  # its last digits depend on the processor


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    path = tmp_path_factory.mktemp("version_0_1") / "runs.duckdb"
    path.write_bytes(gzip.decompress((FOLDER / "runs.duckdb.gz").read_bytes()))
    return Service(path)


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def as_it_was(layer):
    """Version 0.1 counted first tokens that share a group with the query among the distant pairs."""
    pairs = layer["pairs"]
    return pairs["group_only"] / (pairs["group_only"] + pairs["dropped"])


def of_distant_pairs(layer, rule, num_tokens):
    """What is said since: first tokens are none of them."""
    distant = sum(max(0, query - rule["window"] - rule["num_sinks"]) for query in range(num_tokens))
    return 1 - layer["pairs"]["dropped"] / distant


@pytest.mark.slow
def test_a_stored_run_has_the_numbers_it_had(service):
    assert [row["run_id"] for row in list_runs(service.database)] == [RUN]
    summary = run_summary(service.database, RUN)
    summary.pop("db")
    assert (summary.pop("changes"), summary.pop("added_tokens"), summary.pop("special_tokens")) == ([], [], None)  # new
    layers = load_run(service.database, RUN)["layers"]
    kept = [of_distant_pairs(layer, summary["config"], summary["num_tokens"]) for layer in layers]
    assert summary["distant_pairs_kept"] == pytest.approx(sum(kept) / len(kept))
    summary["distant_pairs_kept"] = sum(map(as_it_was, layers)) / len(layers)
    assert summary == EXPECTED["summary"]


def test_the_page_receives_what_it_received(service):
    payload = load_run(service.database, RUN)
    assert {layer.pop("sliding_window") for layer in payload["layers"]} == {None}  # these are new since then
    assert [len(layer.pop("parts")) for layer in payload["layers"]] == [1] * payload["num_layers"]
    for layer in payload["layers"]:
        expected = of_distant_pairs(layer, payload["run"]["config"], payload["run"]["num_tokens"])
        assert layer["distant_kept"] == pytest.approx(expected)
        layer["distant_kept"] = as_it_was(layer)
    assert payload.pop("full_layers") == payload["run"].pop("changes") == payload["run"].pop("added_tokens") == []
    assert payload["quality"]["delta_low"] < INTERVAL["delta_low"] < INTERVAL["delta_high"]
    assert INTERVAL["delta_high"] < payload["quality"]["delta_high"]
    payload["quality"] |= INTERVAL
    assert digest(payload) == EXPECTED["payload_sha256"]
    assert digest(mask_blocks(service.database, RUN, 1)) == EXPECTED["mask_sha256"]


@pytest.mark.parametrize("name", TABLES)
def test_an_export_has_the_bytes_it_had(service, tmp_path, name):
    path = write_table(service.database, RUN, name, "csv", tmp_path / f"{name}.csv")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == EXPECTED["tables"][name]


def test_a_recorded_training_is_listed(service):
    [row] = Trainings(service).rows()
    assert {name: row[name] for name in EXPECTED["training"]} == EXPECTED["training"]


@pytest.mark.parametrize("name", ["learned.safetensors", "learned.pt"])
def test_centroid_files_load(name):
    centroids, expected = load_centroids(FOLDER / name), EXPECTED["centroids"][name]
    assert centroids.sha256 == expected["sha256"]
    assert sorted(centroids.routers) == expected["layers"]
    assert centroids.routers[0].centroids.flatten()[:4].tolist() == expected["first"]
    assert centroids.routers[1].potential.tolist() == expected["potential"]


@pytest.mark.slow
def test_a_bundle_is_rebuilt_from_its_database(service, tmp_path):
    rebuilt = rebuild(service, FOLDER / "bundle.zip", tmp_path / "tables")
    assert rebuilt.again == []  # the run is stored
    differing = [line for line in rebuilt.tables if any(f"/{name}." in line for name in TABLES)]
    assert all("the same cells in other bytes" in line for line in differing)  # they name the version that wrote them


@pytest.mark.slow
def test_public_names_are_imported_as_before():
    """Each line finds packages that were never imported; torch is imported once for all, which takes seconds."""
    lines = [
        "from focus_explorer import show; assert callable(show)",
        "from focus_runtime import compose, focus_attention, load_centroids, load_model, perplexity, FocusConfig",
        "import focus_runtime; focus_runtime.compose; focus_runtime.random_centroids; focus_runtime.__version__",
        "import focus_runtime.composition.attach; from focus_runtime import compose; assert callable(compose)",
    ]
    code = f"""
import sys
for line in {lines!r}:
    for name in [name for name in sys.modules if name.startswith("focus_")]:
        del sys.modules[name]
    exec(line, {{}})
"""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "runtime"), str(ROOT)])}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=os.environ | paths)
