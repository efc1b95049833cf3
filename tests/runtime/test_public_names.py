"""The package's public names load on first use: importing it, or one of its light modules, costs no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import focus_runtime
from tests.helpers import ROOT

MODULES = ("assets", "budget", "config", "errors", "files", "version", "mask.rule", "mask.counts", "mask.distances")
LIGHT = ("focus_runtime", *(f"focus_runtime.{name}" for name in MODULES))


def run(code):
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT / "runtime")
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_light_modules_load_neither_torch_nor_transformers():
    code = f"import sys, {', '.join(LIGHT)}\nprint(sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    assert run(code).strip() == "[]"


@pytest.mark.slow
def test_light_names_load_no_torch():
    code = "import sys\nfrom focus_runtime import FocusConfig, InputError, __version__\nprint('torch' in sys.modules)"
    assert run(code).strip() == "False"


def test_every_public_name_is_listed_and_loads():
    assert set(focus_runtime.__all__) <= set(dir(focus_runtime))
    for name in focus_runtime.__all__:
        value = getattr(focus_runtime, name)
        assert getattr(value, "__name__", name) == name
        assert vars(focus_runtime)[name] is value  # the second look-up is an ordinary one
    assert callable(focus_runtime.compose)


def test_a_submodule_does_not_hide_a_public_name():
    import focus_runtime.composition.attach
    import focus_runtime.measure.perplexity

    assert focus_runtime.compose is focus_runtime.composition.attach.compose
    assert focus_runtime.perplexity is focus_runtime.measure.perplexity.perplexity


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'focus_runtime' has no attribute 'composed'"):
        _ = focus_runtime.composed
    with pytest.raises(ImportError, match="composed"):
        from focus_runtime import composed  # noqa: F401
