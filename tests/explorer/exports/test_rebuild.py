"""Tables made again from a bundle have their bytes, times aside; what differs is named; bad input is one line."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError
from focus_explorer.exports.bundle import write as bundle_tables
from focus_explorer.exports.bundle.read import read_bundle
from focus_explorer.exports.bundle.rebuild import cell_differences, rebuild
from focus_explorer.exports.bundle.write import write_bundle
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.centroids.files import register_in_place
from focus_explorer.usecases.compare.costs import explain_token
from focus_explorer.usecases.compare.settings import measure_grid
from focus_explorer.usecases.pairs import measure_attention
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics import measure_random
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.store.measurements import write_projection
from tests.explorer.conftest import TEXT
from tests.helpers import build_centroids, build_model

pytestmark = [pytest.mark.slow, pytest.mark.long]

EXPLAINED = 60  # the place of a token
FEW = ("groups", "tokens", "timings", "timing_repeats")  # the others take seconds
MEASURED = (*FEW, "attention", "statistics", "comparisons", "links", "missing_links", "predictions")


@pytest.fixture(scope="module")
def made(tmp_path_factory, model_folder):
    """(folder, run id) of a run with further measurements, bundled with its text (all.zip), with fewer tables
    (few.zip), and with those but without the text (without.zip); its database is gone."""
    folder = tmp_path_factory.mktemp("made")
    growing = build_centroids(build_model(vocab_size=512), window_growth=(20, 60))
    save_centroids(growing, folder / "own.safetensors")
    service = Service(folder / "runs.duckdb")
    request = AnalyzeRequest(
        model=model_folder,
        centroids=str(folder / "own.safetensors"),
        window=8,
        max_tokens=120,
        repeats=2,
        backend="masked",
    )
    run_id = analyze(service, TEXT, request, command="focus-explorer test")
    run = fetch_run(service.database, run_id)
    meta = {"method": "UMAP", "parameters": {"tokens": 120}, "seed": 0, "trustworthiness": None, "num_centroids": 4}
    write_projection(service.database, run_id, 0, np.random.default_rng(0).normal(size=(124, 2)), meta)
    measure_random(service, run, lambda stage, part: None)
    measure_attention(service, run_id)
    register_in_place(service.database, str(folder / "own.safetensors"))
    explain_token(service, run_id, EXPLAINED)
    measure_grid(service, run_id, [1], [8], repeats=1, centroids=str(folder / "own.safetensors"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle_tables, "TABLES", MEASURED)
        write_bundle(service, [run_id], folder / "all.zip", text=True, figures=False)
        patch.setattr(bundle_tables, "TABLES", FEW)
        write_bundle(service, [run_id], folder / "few.zip", text=True, figures=False)
        write_bundle(service, [run_id], folder / "without.zip", figures=False)
    same = rebuild(service, folder / "few.zip", folder / "from-database")
    assert (same.same, same.again, same.surroundings) == (True, [], [])
    service.database.path.unlink()
    (folder / "whole.txt").write_text(TEXT, encoding="utf-8")
    return folder, run_id


NOTHING = dict.fromkeys(("attention", "tags", "random_centroids", "comparisons", "lengths"))


def changed(made, tmp_path, change, bundle="few.zip"):
    """A bundle with its manifest changed, and without further measurements, which take seconds to make again."""
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(made[0] / bundle) as archive:
        archive.extractall(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["runs"][0]["measured"] = NOTHING
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


TIMED = ("timings", "timing_repeats", "comparisons")


def test_cells_are_compared():
    old = pa.table({"a": [1.0, 2.0, float("nan"), None], "b": ["x", "y", "z", "z"], "gone": [1, 2, 3, 4]})
    new = pa.table({"a": [1.0, 2.5, float("nan"), 4.0], "b": ["x", "y", "z", "w"]})
    assert cell_differences(old, new) == [
        "columns only in the bundle: gone",
        "column a: 2 of 4 cells differ, by at most 0.5 (first in row 2: 2.0 in the bundle, 2.5 here)",
        "column b: 1 of 4 cells differ (first in row 4: z in the bundle, w here)",
    ]
    assert cell_differences(old, old) == []
    assert cell_differences(old, old.slice(1)) == ["4 rows in the bundle, 3 here"]


def test_tables_come_back_byte_for_byte_but_for_times(made, tmp_path):
    """From the bundle alone, and without its text from the whole text the run was cut from."""
    folder, run_id = made
    own = [str(folder / "own.safetensors")]
    result = rebuild(Service(tmp_path / "nothing.duckdb"), folder / "all.zip", tmp_path / "with", centroids=own)
    assert (result.tables, result.surroundings, result.again) == ([], [], [run_id])
    bundle = read_bundle(folder / "all.zip")
    written = {path.relative_to(tmp_path / "with").as_posix(): path for path in (tmp_path / "with").rglob("*.*")}
    assert written.keys() == bundle.hashes().keys()
    for name, path in written.items():
        assert path.stem in TIMED or path.read_bytes() == bundle.file(name), name
    for what in ("tokens", "comparisons", "timing_repeats", "attention", "statistics", "links", "missing_links"):
        assert f"data/{run_id}/{what}.parquet" in written
    source = changed(made, tmp_path, lambda manifest: None, "without.zip")
    without = rebuild(
        Service(tmp_path / "nothing.duckdb"),
        source,
        tmp_path / "without",
        texts=[str(folder / "whole.txt")],
        centroids=own,
    )
    assert without.same
    assert without.files < len(written)
    measured = {name: read_bundle(folder / name).manifest.runs[0].measured for name in ("all.zip", "without.zip")}
    assert measured["all.zip"].explained_tokens == [EXPLAINED]
    assert (measured["without.zip"].explained_tokens, measured["without.zip"].explained_count) == (None, 1)


def test_differences_are_named(made, tmp_path, capsys):
    """A cell changed by hand and another version: exit status 1, with both; of a manifest alone, which files."""
    folder, run_id = made
    own = str(folder / "own.safetensors")

    def change(manifest):
        path = f"data/{run_id}/groups.parquet"
        file = tmp_path / "unpacked" / path
        table = pyarrow.parquet.read_table(file)
        tokens = pa.chunked_array([[table["tokens"][0].as_py() + 3, *table["tokens"].to_pylist()[1:]]], pa.int64())
        place = table.column_names.index("tokens")
        pyarrow.parquet.write_table(table.set_column(place, "tokens", tokens.cast(table["tokens"].type)), file)
        [listed] = [row for row in manifest["files"] if row["path"] == path]
        listed["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        manifest["versions"]["pyarrow"] = "1.0"

    source = changed(made, tmp_path, change)
    options = ["--centroids", own, "--db", str(tmp_path / "none.duckdb")]
    assert main(["rebuild", str(source), *options, "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out
    assert f"table groups of {run_id}: column tokens: 1 of " in said
    assert "by at most 3" in said
    assert "here differs: version of pyarrow: 1.0 in the bundle" in said
    assert not any(f"table {what}" in said for what in ("tokens", *TIMED))
    alone = tmp_path / "alone" / "manifest.json"
    alone.parent.mkdir()
    shutil.copy(source / "manifest.json", alone)
    result = rebuild(
        Service(tmp_path / "nothing.duckdb"),
        alone,
        tmp_path / "again",
        texts=[str(folder / "whole.txt")],
        centroids=[own],
    )
    assert len(result.tables) == 1
    assert "groups.parquet (the manifest came without the tables: cells unknown)" in result.tables[0]


def _other_weights(manifest):
    manifest["runs"][0]["model"]["fingerprint"] = "0" * 32


def _newer(manifest):
    manifest["format_version"] = 99


def _broken(manifest):
    del manifest["runs"][0]["text"]["sha256"]


def _unlisted(manifest):
    manifest["files"] = [row for row in manifest["files"] if not row["path"].endswith("groups.csv")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_other_weights, "has other weights than the run was made with"),
        (_newer, "made by a newer version"),
        (_broken, r"runs\[0\]\.text\.sha256 is missing"),
        (_unlisted, "does not list tables/.*groups.csv"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(made, tmp_path, change, said):
    source = changed(made, tmp_path, change)
    with pytest.raises(InputError, match=said):
        rebuild(
            Service(tmp_path / "nothing.duckdb"), source, tmp_path / "out", centroids=[str(made[0] / "own.safetensors")]
        )
    assert not (tmp_path / "out").exists()


def test_what_is_missing_or_damaged_is_one_line(made, tmp_path):
    folder, run_id = made
    own = [str(folder / "own.safetensors")]

    def refused(said, source=folder / "few.zip", **given):
        with pytest.raises(InputError, match=said) as error:
            rebuild(Service(tmp_path / "nothing.duckdb"), source, tmp_path / "out", **given)
        assert "\n" not in str(error.value)

    refused("centroid file own.safetensors of run .* is not here")
    refused("not in the bundle and the run is not in the database", folder / "without.zip", centroids=own)
    (tmp_path / "other.txt").write_text("Another text, of other words altogether. " * 30)
    refused("is not the text of run", folder / "without.zip", centroids=own, texts=[str(tmp_path / "other.txt")])
    refused("cannot read", tmp_path / "absent.zip")
    (tmp_path / "cut.zip").write_bytes((folder / "few.zip").read_bytes()[:5000])
    refused("cut.zip is a damaged zip", tmp_path / "cut.zip")
    data = bytearray((folder / "few.zip").read_bytes())
    data[200:400] = bytes(200)
    (tmp_path / "bits.zip").write_bytes(data)
    refused("bits.zip is damaged|other bytes", tmp_path / "bits.zip")
    (tmp_path / "x.json").write_text('{"format": "something else"}')
    refused("is no manifest", tmp_path / "x.json")
    source = changed(made, tmp_path, lambda manifest: None)
    (source / f"tables/{run_id}/groups.csv").write_text("altered")
    refused("groups.csv of manifest.json has other bytes than when the bundle was made", source)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    refused("is there already", folder / "few.zip")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    shutil.rmtree(tmp_path / "out")
    assert not list(tmp_path.glob(".rebuild-*"))
