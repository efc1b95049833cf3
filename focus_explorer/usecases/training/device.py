"""The device that a training runs on."""

from __future__ import annotations

from focus_explorer.errors import InputError


def training_device(requested: str) -> str:
    """The device for this process's copy of the model.

    Args:
        requested: "auto" for the one that accelerate gives this process, so that several processes (`accelerate
            launch`) share the GPUs; or cpu, cuda, cuda:N or mps.

    Raises:
        DeviceError: this machine has no such device. InputError: one device is named for several processes, or "split".
    """
    from accelerate import PartialState

    from focus_runtime.models.devices import AUTO, SPLIT, place

    state = PartialState()
    if requested == AUTO:
        return str(state.device)
    if requested == SPLIT:
        raise InputError("training needs the whole model on one device", expected="cpu, cuda, cuda:N or mps")
    if state.num_processes > 1:
        raise InputError(
            f"--device {requested} was given to {state.num_processes} processes, which would share it",
            fix="leave it out: each process takes its own GPU",
        )
    return place(requested).device
