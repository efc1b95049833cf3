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
    *("factors_kernel", "chunk_kernel", "join_kernel", "route_kernel", "sets_kernel", "decide_kernel"),
}
# Bytes that a program may share. Of 8.0 those of 8.6 and 8.9, which have the same tiles.
SHARED = {80: 99 << 10, 90: 227 << 10, 120: 99 << 10}
MOST_SPILLED = 512  # bytes of a thread: kilobytes would make a kernel several times as slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    seed = str(int.from_bytes(os.urandom(2), "little"))
    print(f"seed: {seed}")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")), "PYTHONPATH": f"{ROOT / 'runtime'}"}
    command = [sys.executable, "-m", "tests.runtime.attention.cuda.compiler", seed]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_kernel_compiles(found):
    assert {row["kernel"] for row in found["kernels"] if row["capability"] == 90} == KERNELS
    for capability in SHARED:  # those whose tiles depend on it
        rows = {row["kernel"] for row in found["kernels"] if row["capability"] == capability}
        assert {"near_kernel", "far_kernel"} < rows


def test_they_fit_into_what_a_multiprocessor_has(found):
    for row in found["kernels"]:
        assert row["shared"] <= SHARED[row["capability"]], row
        assert row["spilled"] <= MOST_SPILLED, row
        assert 0 < row["registers"] <= 255, row


def test_all_but_those_that_are_given_copies_are_launched_without_triton(found):
    for row in found["kernels"]:
        if row["kinds"] is None:
            assert row["kernel"] == "far_kernel"
        else:
            assert row["kinds"].startswith("p"), row
    assert {row["kernel"] for row in found["kernels"] if row["kinds"]} == KERNELS


def test_calls_that_share_a_compiled_kernel_would_be_compiled_alike(found):
    """A kernel compiled for aligned rows, given others, would read wrong numbers, or end the process."""
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
