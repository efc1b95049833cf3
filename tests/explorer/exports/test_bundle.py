"""A bundle has what it lists, is the same twice, and without the text shows none of it in order."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile

import numpy as np
import pyarrow.parquet
import pytest

from focus_explorer.errors import InputError
from focus_explorer.exports.bundle import manifest
from focus_explorer.exports.bundle import write as bundle_tables
from focus_explorer.exports.bundle.read import read_bundle
from focus_explorer.exports.bundle.write import BY_PLACE, DATA_ONLY, PLACES, readme, steady, write_bundle, write_figures
from focus_explorer.exports.figures import write as figures
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import table
from focus_explorer.usecases.labels import label_run
from focus_explorer.usecases.runs import list_runs
from focus_runtime.config import FocusConfig
from focus_runtime.store.measurements import write_projection
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow

FEW = ("groups", "tokens", "assignments")  # statistics take seconds


@pytest.fixture(scope="module")
def bundles(tmp_path_factory, service, run_id):
    """The same run with its text and without."""
    folder = tmp_path_factory.mktemp("bundles")
    label_run(service, run_id, name="a private name", note="a private note")
    paths = {text: folder / f"{text}.zip" for text in (True, False)}
    write_bundle(service, [run_id], paths[False], figures=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle_tables, "TABLES", FEW)
        write_bundle(service, [run_id], paths[True], text=True, figures=False)
    label_run(service, run_id, name="", note="")
    return paths


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_everything_is_listed_with_its_hash(bundles, run_id):
    for text, path in bundles.items():
        files = contents(path)
        listed = {row["path"]: row for row in json.loads(files.pop("manifest.json"))["files"]}
        assert {name: hashlib.sha256(data).hexdigest() for name, data in files.items()} == {
            name: row["sha256"] for name, row in listed.items()
        }
        assert {"README.txt", "references.bib", f"data/{run_id}/groups.parquet"} <= files.keys()
        assert (f"text/{run_id}.txt" in files) == text
        assert b"2604.03260" in files["references.bib"]
        assert b"Composing Sparse Attention via Learned Grouping" in files["references.bib"]
        assert b"Why Attend to Everything? Focus is the Key" in files["references.bib"]


def test_the_manifest_says_how_the_run_came_about(bundles, service, run_id):
    listed = json.loads(contents(bundles[True])["manifest.json"])
    assert read_bundle(bundles[True]).manifest.model_dump(by_alias=True, exclude_unset=True) == listed
    entry = listed["runs"][0]
    run = next(row for row in list_runs(service.database) if row["run_id"] == run_id)
    assert entry["config"] == run["config"]
    assert entry["text"]["sha256"] == hashlib.sha256(TEXT.encode()).hexdigest() == run["text_sha256"]
    assert entry["created_at"] == run["created_at"].isoformat()
    assert entry["model"] == {"id": run["model_id"], "fingerprint": run["model_fingerprint"]}
    assert entry["execution"]["threads"] >= 1
    assert len(entry["tokenizer"]["vocabulary_sha256"]) == 64
    assert {row["repeat"] for row in entry["timing"]["repeats"]} == {0, 1}


def test_the_same_run_gives_the_same_bytes(bundles, monkeypatch, tmp_path, service, run_id):
    monkeypatch.setattr(bundle_tables, "TABLES", FEW)
    again = write_bundle(service, [run_id, run_id], tmp_path / "again.zip", text=True, figures=False)
    assert again.read_bytes() == bundles[True].read_bytes()  # a name and a note are not part of a run


def test_without_the_text_nothing_shows_it(bundles, service, run_id):
    """Words of the text may be counted, but no two neighbours stand together anywhere, and no row has a place."""
    files = contents(bundles[False])
    shown = b"\n".join(files.values()).decode("utf-8", "replace")
    ids = table(service.database, run_id, "tokens")["token_id"].to_pylist()
    for secret in ("harbour", "Déjà vu", "a private", " ".join(map(str, ids[:4])), ", ".join(map(str, ids[:4]))):
        assert secret not in shown, secret
    for name, data in files.items():
        if name.endswith(".parquet"):
            stored = pyarrow.parquet.read_table(io.BytesIO(data))
            assert not PLACES & set(stored.column_names), name
            assert "harbour" not in str(stored.to_pylist())
    maps = json.loads(files["manifest.json"])["runs"][0]["maps"]
    assert all("position" not in one["tokens"] and one["tokens"]["x"] == sorted(one["tokens"]["x"]) for one in maps)


def executed(run_id, device, dtype, changes=()):
    """The manifest's entry of a run, as far as the README depends on it."""
    config = FocusConfig(num_groups=4, routing_dim=8).to_dict()
    return {
        "run_id": run_id,
        "text": {"tokens": 120},
        "model": {"id": "tiny"},
        "centroids": {"name": "random"},
        "config": config,
        "changes": list(changes),
        "execution": {"device": device, "dtype": dtype},
        "left_out": {},
    }


def said(*runs):
    figures = {"missing": [], "asked_for": True}
    return " ".join(readme({"runs": list(runs), "includes_text": False, "figures": figures}).split())


def test_the_same_bytes_are_promised_of_single_precision_on_the_processor_alone(bundles):
    promised = "On the same machine, with the same versions and as many threads, this gives the same bytes"
    exact, loose = executed("exact", "cpu", "float32"), executed("loose", "cuda:0", "float32")
    assert promised in " ".join(contents(bundles[True])["README.txt"].decode().split())
    assert promised in said(exact)
    for run in (loose, executed("half", "cpu", "bfloat16")):
        assert promised not in said(run)
        assert "does not promise the same bytes" in said(run)
    both = said(exact, loose)
    assert promised in both
    assert "float32 on cuda:0 (loose) it does not promise" in both


def test_the_places_that_changes_by_hand_name_are_mentioned():
    sentence = "name them by their place"
    assert sentence in said(executed("changed", "cpu", "float32", ["move:12:163:B"]))
    assert sentence not in said(executed("own", "cpu", "float32"))


def test_the_protocol_of_times_is_that_of_the_device(bundles):
    listed = read_bundle(bundles[True]).manifest.runs[0].timing["protocol"]
    assert listed == manifest.timing_protocol("cpu")
    assert "first 256 tokens" in listed
    assert "another pass" not in listed
    for device in ("cuda:0", "cuda:0 + cuda:1"):
        assert "over all tokens" in manifest.timing_protocol(device)
        assert "from another pass just before" in manifest.timing_protocol(device)


def test_figures_that_cannot_be_drawn_are_named(monkeypatch, tmp_path, service, run_id):
    from focus_explorer.exports.figures import render

    def no_browser():
        raise InputError("figures need Chrome or Chromium, and none was found")

    monkeypatch.setattr(render, "open_browser", no_browser)
    monkeypatch.setattr(bundle_tables, "TABLES", FEW)
    members = contents(write_bundle(service, [run_id], tmp_path / "b.zip"))
    missing = json.loads(members["manifest.json"])["figures"]["missing"]
    assert {"timings", "group_sizes"} <= {one["name"] for one in missing}
    assert re.search(r"figures .*timings of .*none was found", members["README.txt"].decode())
    assert not any(name.startswith("figures/") for name in members)


def test_every_table_with_places_is_known_to_have_them(service, run_id):
    with service.database.read():  # opened once for all
        for what in TABLES:
            assert (what in BY_PLACE) == bool(PLACES & set(table(service.database, run_id, what).column_names)), what
    assert set(DATA_ONLY) <= set(BY_PLACE)


def test_pictures_lose_their_times_and_random_names():
    assert steady(b"/CreationDate (D:20261121204500+00'00')", "pdf") == b"/CreationDate (D:20000101000000+00'00')"
    one = b'<g class="clips"><clipPath id="clip1a2b3cxyplot"/><g clip-path="url(#clip1a2b3cxyplot)"/>'
    assert steady(one, "svg") == steady(one.replace(b"1a2b3c", b"f00ba7"), "svg")


@pytest.mark.long
@pytest.mark.browser
def test_figures_are_the_same_twice_and_carry_no_words(monkeypatch, tmp_path, service, run_id):
    """Drawn by two starts of the browser; the map's points do not stand in the order of the text."""
    from focus_explorer.exports.figures.render import browser

    if browser() is None:
        pytest.skip("no Chrome or Chromium")
    monkeypatch.setattr(figures, "FIGURES", dict.fromkeys(("map", "loss", "mask")))
    places = np.random.default_rng(0).normal(size=(610, 2))
    meta = {"method": "UMAP", "parameters": {}, "seed": 0, "trustworthiness": None, "num_centroids": 4}
    write_projection(service.database, run_id, 0, places, meta)
    results = [write_figures(service.database, run_id, tmp_path / name, with_text=False) for name in ("1", "2")]
    assert results[0] == results[1]
    assert f"figures/{run_id}/map-layer0.svg" in results[0]["made"]
    assert [one["name"] for one in results[0]["missing"]] == ["loss", "mask"]
    for path in results[0]["made"]:
        first, second = ((tmp_path / name / path).read_bytes() for name in ("1", "2"))
        assert first == second, path
        assert first.startswith(b"%PDF" if path.endswith(".pdf") else b"<svg")
        assert b"harbour" not in first
