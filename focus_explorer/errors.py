"""The exceptions a user can meet, all with one readable message; the runtime's are re-exported."""

from focus_runtime.errors import (
    Cancelled,
    CentroidFileError,
    ConfigError,
    InputError,
    ModelError,
    StoreError,
    TextError,
    TrainingError,
    TrainingStopped,
)


class NotFoundError(InputError):
    """A requested run, layer or file does not exist."""


__all__ = [
    "Cancelled",
    "CentroidFileError",
    "ConfigError",
    "InputError",
    "ModelError",
    "NotFoundError",
    "StoreError",
    "TextError",
    "TrainingError",
    "TrainingStopped",
]
