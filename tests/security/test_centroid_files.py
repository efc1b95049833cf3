"""Centroid files made to take memory or time: refused within a small part of what they ask for."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import resource
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from focus_runtime.config import FocusConfig
from focus_runtime.errors import CentroidFileError
from focus_runtime.routing.centroid_file import load_centroids


def good(**changes):
    parts = {"layers.0.projection": torch.randn(64, 16), "layers.0.centroids": torch.randn(4, 16)}
    return parts | {f"layers.0.{name}": tensor for name, tensor in changes.items()}


def deflated(path, content):
    """What torch.save writes, compressed."""
    plain = io.BytesIO()
    torch.save(content, plain)
    with zipfile.ZipFile(plain) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for entry in archive.infolist():
            packed.writestr(entry.filename, archive.read(entry))


@pytest.mark.parametrize(
    "hostile",
    [
        torch.zeros(1, 1).expand(40_000_000, 16),
        torch.zeros(1).as_strided((1 << 40, 16), (0, 0)),
        torch.zeros(64, 16).to_sparse(),
        torch.zeros(64, 16).to_sparse_csr(),
        torch.zeros(64, 16, device="meta"),
        torch.nested.nested_tensor([torch.zeros(64, 16)]),
        torch.zeros(()),
        torch.zeros(0, 16),
    ],
    ids=["expanded", "a terabyte", "sparse", "CSR", "meta", "nested", "0-d", "empty"],
)
@pytest.mark.parametrize("part", ["projection", "centroids", "potential"])
@pytest.mark.filterwarnings("ignore")
def test_h2_tensors_without_storage_of_their_own(hostile, part, tmp_path):
    path = tmp_path / "c.pt"
    torch.save(good(**{part: hostile}), path)
    assert path.stat().st_size < 100_000
    with pytest.raises(CentroidFileError):
        load_centroids(path)


def test_h2_one_storage_used_by_many_layers(tmp_path):
    """Each layer would hold a copy."""
    shared = torch.zeros(100_000, 16)
    parts = {f"layers.{layer}.{name}": shared for layer in range(100) for name in ("projection", "centroids")}
    torch.save(parts, tmp_path / "c.pt")
    with pytest.raises(CentroidFileError, match="320,000,000 values"):
        load_centroids(tmp_path / "c.pt")


def test_files_of_old_torch_are_refused(tmp_path):
    """They declare how much is to be allocated before it is read."""
    torch.save(good(), tmp_path / "c.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(CentroidFileError, match=r"saved before torch 1\.6"):
        load_centroids(tmp_path / "c.pt")


def refusal(path, answer):
    """In a process of its own: why a file is refused, and the kilobytes that took."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CentroidFileError) as refused:
        load_centroids(path)
    answer.put((str(refused.value), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


@pytest.mark.long
def test_h2_refusing_takes_less_memory_than_a_hundred_megabytes(tmp_path):
    deflated(tmp_path / "c.pt", good(projection=torch.zeros(3_000_000, 16)))
    forks = multiprocessing.get_context("fork")
    answer = forks.Queue()
    process = forks.Process(target=refusal, args=(tmp_path / "c.pt", answer))
    process.start()
    said, kilobytes = answer.get(timeout=60)
    process.join()
    assert "is compressed" in said
    assert kilobytes < 100_000


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sinkhorn_iterations": 2**31 - 1}, "at most 1,000"),
        ({"temperature": 1e-300}, "from 1e-06"),
        ({"temperature": 1e300}, "to 1e.06"),
        ({"num_sinks": 10**400}, "num_sinks"),
        ({"window": -1}, "window"),
        ({"layers": list(range(10_000))}, "no tensors for layer"),
    ],
)
def test_h3_m1_settings_out_of_range(changes, said, tmp_path):
    text = json.dumps(json.loads(FocusConfig().to_json()) | changes)
    save_file(good(), tmp_path / "c.safetensors", {"format": "focus-centroids", "config": text})
    with pytest.raises(CentroidFileError, match=said):
        load_centroids(tmp_path / "c.safetensors")


@pytest.mark.parametrize("value", [3e38, -3e38, float("nan"), float("inf")])
@pytest.mark.parametrize("part", ["projection", "centroids"])
def test_m1_values_that_make_scores_no_numbers(value, part, tmp_path):
    parts = good()
    parts[f"layers.0.{part}"][1, 2] = value
    save_file(parts, tmp_path / "c.safetensors", {"format": "focus-centroids", "config": FocusConfig().to_json()})
    with pytest.raises(CentroidFileError, match=f"layers.0.{part} contains"):
        load_centroids(tmp_path / "c.safetensors")


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "c.safetensors")
    with pytest.raises(CentroidFileError, match="is not a file"):
        load_centroids(tmp_path / "c.safetensors")
