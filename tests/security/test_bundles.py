"""Bundles and manifests that somebody has changed: one message, or a rebuild that ends."""

from __future__ import annotations

import json
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given

from focus_explorer.errors import InputError
from focus_explorer.exports.bundle import write as bundle_tables
from focus_explorer.exports.bundle.read import read_bundle
from focus_explorer.exports.bundle.rebuild import rebuild
from focus_explorer.exports.bundle.write import write_bundle
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_runtime.store.measurements import write_projection
from tests.explorer.conftest import TEXT, model_folder  # noqa: F401
from tests.security.mutations import EXAMPLES, FUZZ, damaged, mutated


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, model_folder):  # noqa: F811
    """A small bundle with its text, a map and few tables."""
    folder = tmp_path_factory.mktemp("bundle")
    service = Service(folder / "runs.duckdb")
    request = AnalyzeRequest(
        model=model_folder, centroids="random", top_k=1, window=8, max_tokens=40, repeats=1, backend="masked"
    )
    run_id = analyze(service, TEXT, request, command="focus-explorer test")
    meta = {"method": "UMAP", "parameters": {"tokens": 40}, "seed": 0, "trustworthiness": None, "num_centroids": 4}
    write_projection(service.database, run_id, 0, np.random.default_rng(0).normal(size=(44, 2)), meta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle_tables, "TABLES", ("groups", "timings"))
        write_bundle(service, [run_id], folder / "bundle.zip", text=True, figures=False)
    return folder / "bundle.zip"


def manifest_of(bundle):
    with zipfile.ZipFile(bundle) as archive:
        return json.loads(archive.read("manifest.json"))


def refused_or_read(path):
    with suppress(InputError):
        return read_bundle(path)
    return None


@pytest.mark.long
@pytest.mark.fuzz
def test_m6_changed_manifests(bundle, tmp_path):
    @FUZZ
    @given(manifest=mutated(manifest_of(bundle)))
    def check(manifest):
        (tmp_path / "manifest.json").write_text(json.dumps(manifest, ensure_ascii=True), encoding="utf-8")
        refused_or_read(tmp_path / "manifest.json")

    check()


@pytest.mark.long
@pytest.mark.fuzz
def test_m6_damaged_zips(bundle, tmp_path):
    @FUZZ
    @given(data=damaged(bundle.read_bytes()))
    def check(data):
        (tmp_path / "b.zip").write_bytes(data)
        read = refused_or_read(tmp_path / "b.zip")
        if read is not None:
            for row in read.manifest.files:
                with suppress(InputError):
                    read.file(row.path)

    check()


@pytest.mark.parametrize("place", ["runs", "machine"])
def test_m6_deep_json(bundle, tmp_path, place):
    text = json.dumps(manifest_of(bundle) | {place: "DEEP"}).replace('"DEEP"', "[" * 100_000 + "]" * 100_000)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match="no readable JSON"):
        read_bundle(tmp_path / "manifest.json")


@pytest.mark.slow
def test_m6_a_manifest_that_unpacks_to_gigabytes(tmp_path):
    with (
        zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("manifest.json", "w", force_zip64=True) as stream,
    ):
        for _ in range(150):
            stream.write(b" " * (1 << 20))
    with pytest.raises(InputError, match=r"manifest\.json of b\.zip is too large"):
        read_bundle(tmp_path / "b.zip")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: run["execution"].update(threads=10**9), "execution.threads is 1000000000"),
        (lambda run: run["model"].pop("fingerprint"), r"runs\[0\].model.fingerprint is missing"),
        (lambda run: run["text"].update(file="../x"), "text"),
        (lambda run: run["config"].update(top_k="2"), "config: top_k is '2'; expected a whole number of at least 1"),
        (lambda run: run["config"].pop("top_k"), "config: top_k is missing"),
        (lambda run: run.update(hidden=1), "hidden, which this version does not know"),
        (lambda run: run["tables"].append("secrets"), r"tables\[2\] is 'secrets'; expected a table that this version"),
    ],
    ids=["threads", "missing", "text", "config", "setting", "unknown", "table"],
)
def test_m6_what_the_audit_named(bundle, tmp_path, change, said):
    manifest = manifest_of(bundle)
    change(manifest["runs"][0])
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=said):
        read_bundle(tmp_path / "manifest.json")


@pytest.mark.fuzz
@pytest.mark.long
def test_m6_what_is_read_can_be_rebuilt(bundle, tmp_path):
    """A manifest that passes its check leads to files or to one message."""
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path / "unpacked")
    rebuilt = []

    @FUZZ
    @example(manifest=manifest_of(bundle))  # whatever is drawn, one passes
    @given(manifest=mutated(manifest_of(bundle)))
    def check(manifest):
        (tmp_path / "unpacked" / "manifest.json").write_text(json.dumps(manifest))
        if refused_or_read(tmp_path / "unpacked") is None or len(rebuilt) >= EXAMPLES / 20:
            return
        rebuilt.append(manifest)
        out = tmp_path / f"out{len(rebuilt)}"
        with suppress(InputError):
            rebuild(Service(tmp_path / "nothing.duckdb"), tmp_path / "unpacked", out)

    check()
    assert rebuilt
