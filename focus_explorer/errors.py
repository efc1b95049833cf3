"""The exceptions a user can meet, all with one readable message; the runtime's are re-exported."""

from focus_runtime.errors import Cancelled as Cancelled
from focus_runtime.errors import CentroidFileError as CentroidFileError
from focus_runtime.errors import ConfigError as ConfigError
from focus_runtime.errors import InputError as InputError
from focus_runtime.errors import MemoryShortError as MemoryShortError
from focus_runtime.errors import ModelError as ModelError
from focus_runtime.errors import StoreBusyError as StoreBusyError
from focus_runtime.errors import StoreError as StoreError
from focus_runtime.errors import TextError as TextError
from focus_runtime.errors import TrainingError as TrainingError
from focus_runtime.errors import TrainingStopped as TrainingStopped
from focus_runtime.failures import device_failure as device_failure


class NotFoundError(InputError):
    """A requested run, layer or file does not exist."""


class DeletedRunError(NotFoundError):
    """A run was deleted and can be brought back."""
