"""What the application sets for the libraries it uses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from focus_explorer.settings import KEPT_KERNELS, bound_caches, wait_without_spinning

# Products of as many rows as texts have tokens: each length is another shape, of which libraries keep kernels.
LENGTHS = """
import ctypes, gc
from focus_explorer.settings import bound_caches
bound_caches()
import psutil, torch
torch.set_num_threads(1)
weights, sizes = [torch.randn(*shape) for shape in ((576, 576), (1536, 576), (576, 1536))], []
for rows in range(40, 240):
    for weight in weights:
        torch.ops.mkldnn._linear_pointwise(torch.randn(rows, weight.shape[1]), weight, None, "none", [], "")
    if rows in (100, 239):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        sizes.append(psutil.Process().memory_info().rss / 2**20)
print(sizes[1] - sizes[0])
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@pytest.mark.skipif(sys.platform != "linux", reason="memory is given back by glibc alone")
def test_memory_does_not_grow_with_every_length_of_a_text():
    plain = {name: value for name, value in os.environ.items() if not name.endswith("CACHE_CAPACITY")}
    done = subprocess.run([sys.executable, "-c", LENGTHS], env=plain, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 30  # MiB; over 60 without the bound


def test_caches_are_bounded_unless_the_user_says_otherwise(monkeypatch):
    names = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    monkeypatch.setenv(names[0], "7")
    monkeypatch.setenv(names[1], "")
    monkeypatch.delenv(names[1])
    bound_caches()
    assert [os.environ[name] for name in names] == ["7", str(KEPT_KERNELS)]


def test_threads_wait_without_spinning_unless_the_user_says_otherwise(monkeypatch):
    for given in ({}, {"GOMP_SPINCOUNT": "1000"}, {"OMP_WAIT_POLICY": "ACTIVE"}):
        with monkeypatch.context() as environment:
            for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
                environment.delenv(name, raising=False)
            for name, value in given.items():
                environment.setenv(name, value)
            wait_without_spinning()
            left = {name: os.environ[name] for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY") if name in os.environ}
            environment.delenv("OMP_WAIT_POLICY", raising=False)
        assert left == (given or {"OMP_WAIT_POLICY": "PASSIVE"})
