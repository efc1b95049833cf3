"""The device of a training's processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from focus_explorer.errors import InputError
from focus_explorer.usecases.training.session import training_device


@pytest.fixture
def processes(monkeypatch):
    """Sets what accelerate says of this process."""

    def say(count, device="cpu"):
        monkeypatch.setattr("accelerate.PartialState", lambda: SimpleNamespace(num_processes=count, device=device))

    return say


def test_auto_is_the_device_accelerate_gives_this_process(processes):
    processes(2, "cuda:1")
    assert training_device("auto") == "cuda:1"


def test_a_named_device_is_taken(processes):
    processes(1, "cuda:0")
    assert training_device("cpu") == "cpu"


@pytest.mark.parametrize(
    ("count", "device", "message"),
    [
        (1, "split", "training needs the whole model on one device; expected cpu, cuda, cuda:N or mps"),
        (1, "gpu", "device 'gpu' is unknown"),
        (2, "cpu", "--device cpu was given to 2 processes, which would share it; leave it out"),
    ],
)
def test_other_devices_are_refused(processes, count, device, message):
    processes(count)
    with pytest.raises(InputError, match=message):
        training_device(device)
