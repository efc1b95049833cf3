"""The runtime's attention, compose and measurement import with torch, transformers and safetensors alone.

Training needs accelerate too, which the project depends on.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers import ROOT

RUNTIME = ROOT / "runtime"
BLOCKED = (
    "gguf",
    "accelerate",
    "duckdb",
    "gradio",
    "plotly",
    "umap",
    "pandas",
    "sklearn",
    "pyarrow",
    "jinja2",
    "scipy",
    "matplotlib",
    "focus_explorer",
)
# Each finder is called for all other packages only, so that blocked ones are absent, also to those who merely look.
FINDER = f"""
import sys

class Filtered:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {BLOCKED!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Filtered(finder) for finder in sys.meta_path]
"""


def run(code, *arguments):
    command = [sys.executable, "-c", FINDER + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=RUNTIME)


pytestmark = pytest.mark.slow


def test_the_finder_blocks():
    for name in ("gguf", "duckdb", "jinja2"):
        assert f"No module named '{name}'" in run(f"import {name}").stderr


@pytest.mark.long
def test_the_runtime_attends_and_the_gpu_script_is_imported_without_the_rest():
    """A lent GPU machine has torch, transformers and safetensors alone."""
    code = f"""
import focus_runtime
import focus_runtime.measure.loss, focus_runtime.measure.perplexity
import focus_runtime.measure.speed.layer, focus_runtime.measure.speed.model
import focus_runtime.composition.attach
import focus_runtime.attention.flex
import torch
from focus_runtime import focus_attention
x = torch.randn(1, 2, 40, 16)
groups = 1 << (torch.arange(40)[None] % 4)
a = focus_attention(x, x, x, groups, window=3, num_sinks=1)
b = focus_attention(x, x, x, groups, window=3, num_sinks=1, backend="decomposed")
assert (a - b).abs().max() < 1e-5
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(RUNTIME)!r}]
import benchmarks.gpu
"""
    done = run(code)
    assert done.returncode == 0, done.stderr[-2000:]
