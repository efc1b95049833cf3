"""Fixtures of the tests of composed models."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.composition import attend, factors, gpu


@pytest.fixture
def kernels(monkeypatch):
    """The GPU's kernels take calls on the CPU too, in Triton's interpreter; gives the names of those that ran."""
    from focus_runtime.gpu import Launches

    names, run = [], Launches.run

    def noted(self, name, *arguments):
        names.append(name)
        return run(self, name, *arguments)

    monkeypatch.setattr(Launches, "run", noted)

    def enable():
        if not torch.cuda.is_available():  # where the CPU's own kernel would take calls before these are asked
            for module in (gpu, factors):
                monkeypatch.setattr(module, "attention_fits", lambda *_: True)
            monkeypatch.setattr("focus_runtime.routing.router.takes_hidden", lambda hidden: not torch.is_grad_enabled())
            monkeypatch.setattr(attend, "_together_on_cpu", attend._together_on_gpu)
            monkeypatch.setattr("focus_runtime.composition.layer.defers", lambda *_: False)

    return names, enable
