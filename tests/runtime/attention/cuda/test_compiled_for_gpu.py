"""What Triton's compiler makes of the kernels for a GPU, where there is none: see compiler.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from tests.helpers import ROOT, needs_triton

needs_triton()

from focus_runtime.attention.cuda import grouped  # noqa: E402

pytestmark = pytest.mark.slow
KERNELS = {
    *("pairwise_kernel", "near_kernel", "far_kernel", "rest_kernel", "copy_kernel", "count_kernel", "place_kernel"),
    *("factors_kernel", "chunk_kernel", "join_kernel", "route_kernel", "decide_kernel"),
}
# Bytes that a program may share. Of 8.0 those of 8.6 and 8.9, which have the same tiles.
SHARED = {80: 99 << 10, 90: 227 << 10, 120: 99 << 10}
MOST_SPILLED = 512  # bytes of a thread: kilobytes would make a kernel several times as slow


def compiler(folder, *what):
    """What `compiler.py` prints, in a process in which Triton does not interpret."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(folder), "PYTHONPATH": f"{ROOT / 'runtime'}"}
    command = [sys.executable, "-m", "tests.runtime.attention.cuda.compiler", *what]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_every_kernel_compiles_and_fits_and_is_launched_without_triton(tmp_path):
    """All but those that are given copies are launched without Triton."""
    kernels = compiler(tmp_path, "kernels")
    assert {row["kernel"] for row in kernels if row["capability"] == 90} == KERNELS
    for capability in SHARED:  # those whose tiles depend on it
        rows = {row["kernel"] for row in kernels if row["capability"] == capability}
        assert {"near_kernel", "far_kernel"} < rows
    for row in kernels:
        assert row["shared"] <= SHARED[row["capability"]], row
        assert row["spilled"] <= MOST_SPILLED, row
        assert 0 < row["registers"] <= 255, row
        assert row["kernel"] == "far_kernel" if row["kinds"] is None else row["kinds"].startswith("p"), row
    assert {row["kernel"] for row in kernels if row["kinds"]} == KERNELS


@pytest.mark.long
def test_calls_that_share_a_compiled_kernel_would_be_compiled_alike(tmp_path):
    """A kernel compiled for aligned rows, given others, would read wrong numbers, or end the process."""
    seed = str(int.from_bytes(os.urandom(2), "little"))
    print(f"seed: {seed}")
    found = compiler(tmp_path, "calls", seed)
    assert found["launches"] > 300
    assert found["mistaken"] == []


@pytest.mark.parametrize(
    ("capability", "shared", "large"),
    [((8, 0), 166_912, False), ((8, 9), 101_376, False), ((9, 0), 232_448, True), ((12, 0), 101_376, False)],
)
def test_large_tiles_are_for_gpus_that_hold_them(capability, shared, large, monkeypatch):
    properties = SimpleNamespace(major=capability[0], minor=capability[1], shared_memory_per_block_optin=shared)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    for copied, (small, usual) in enumerate(
        ((grouped.SMALL_FAR_TILES, grouped.FAR_TILES), (grouped.SMALL_COPIED_TILES, grouped.COPIED_TILES))
    ):
        assert grouped._far_tiles(torch.device("cuda"), bool(copied)) == (usual if large else small)
