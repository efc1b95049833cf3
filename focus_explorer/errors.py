"""The exceptions a user can meet, all with one readable message; the runtime's are re-exported."""

from focus_runtime.errors import (
    Cancelled,
    CentroidFileError,
    ConfigError,
    InputError,
    MemoryShortError,
    ModelError,
    StoreBusyError,
    StoreError,
    TextError,
    TrainingError,
    TrainingStopped,
)
from focus_runtime.failures import device_failure


class NotFoundError(InputError):
    """A requested run, layer or file does not exist."""


class DeletedRunError(NotFoundError):
    """A run was deleted and can be brought back."""


__all__ = [
    "Cancelled",
    "CentroidFileError",
    "ConfigError",
    "DeletedRunError",
    "InputError",
    "MemoryShortError",
    "ModelError",
    "NotFoundError",
    "StoreBusyError",
    "StoreError",
    "TextError",
    "TrainingError",
    "TrainingStopped",
    "device_failure",
]
