"""Killed at any moment: the database opens, all its runs are whole, no half file has its final name, and it goes on."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.labels import label_run
from focus_explorer.usecases.service import Service
from focus_runtime import files
from focus_runtime.files import PART, replacing, sweep_parts
from focus_runtime.routing.centroid_file import save_centroids
from tests.explorer.conftest import TEXT
from tests.helpers import ROOT, build_centroids, build_model, build_tokenizer
from tests.security.mutations import EXAMPLES

pytestmark = [pytest.mark.fuzz, pytest.mark.slow]
ATTEMPTS = max(1, EXAMPLES // 40)
OTHERS = ["upload", "export", "corpus", "train", "delete", "migrate"]
OTHERS += ["bundle"] * (EXAMPLES > 100)  # which opens a browser each time


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a model, centroids, texts, and databases: with a run that has to stay, with more, and of 0.1."""
    folder = tmp_path_factory.mktemp("kills")
    model = build_model(vocab_size=512)
    model.save_pretrained(folder / "tiny")
    build_tokenizer().save_pretrained(folder / "tiny")
    save_centroids(build_centroids(model), folder / "c.safetensors")
    (folder / "docs").mkdir()
    for place in (folder / "text.txt", folder / "docs" / "a.txt", folder / "docs" / "b.txt"):
        place.write_text(TEXT)
    service = Service(folder / "before.duckdb")
    request = AnalyzeRequest(model=str(folder / "tiny"), centroids="random", top_k=1, window=8, repeats=1)
    label_run(service, analyze(service, TEXT, request), name="kept")
    shutil.copyfile(folder / "before.duckdb", folder / "many.duckdb")
    for _ in range(2):
        analyze(Service(folder / "many.duckdb"), TEXT, request)
    shutil.copyfile(folder / "before.duckdb", folder / "runs.duckdb")
    old = gzip.decompress((ROOT / "tests" / "fixtures" / "version_0_1" / "runs.duckdb.gz").read_bytes())
    (folder / "0.1.duckdb").write_bytes(old)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("operations", [["analyze"], OTHERS], ids=["analyze", "others"])
def test_nothing_is_lost_or_half_there(prepared, operations):
    seed = int.from_bytes(os.urandom(4))
    done = subprocess.run(
        [sys.executable, "-m", "tests.security.kill_driver", ",".join(operations), prepared, str(ATTEMPTS), str(seed)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert results.keys() == set(operations)
    print(json.dumps(results))
    assert {name: result["wrong"] for name, result in results.items() if result["wrong"]} == {}, f"seed {seed}"
    if ATTEMPTS > 4:  # of a few, all may have ended before
        assert sum(result["killed"] for result in results.values()) > ATTEMPTS


def test_what_killed_processes_left_is_swept_when_it_is_old_and_nobodys(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = {
        "dead": f"{PART}{ended.pid}-x.zip",
        "dead folder": f"{PART}{ended.pid}-y",
        "alive": f"{PART}{os.getppid()}-x.zip",
        "young": f"{PART}{ended.pid}-z.zip",
        "another's": ".part-of-something",
    }
    for what, name in left.items():
        (tmp_path / name).mkdir() if what == "dead folder" else (tmp_path / name).write_text("half")
        if what != "young":
            os.utime(tmp_path / name, (time.time() - 7200,) * 2)
    with replacing(tmp_path / "out.zip") as part:
        part.write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [left["alive"], left["young"], left["another's"], "out.zip"]
    )
    os.utime(tmp_path / left["young"], (time.time() - 7200,) * 2)
    sweep_parts(tmp_path)  # once a process
    assert (tmp_path / left["young"]).exists()
    files._swept.discard(tmp_path)
    sweep_parts(tmp_path)
    assert not (tmp_path / left["young"]).exists()
