"""One training at a time writes to a result: two would overwrite each other's checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from focus_explorer.errors import TrainingError
from focus_runtime.files import one_process_at_a_time


@contextmanager
def one_writer(result: Path) -> Iterator[None]:
    """Refuse a second training of a result while the block runs; of several processes of one training the first asks.

    Args:
        result: file, or folder that is there.

    Raises:
        TrainingError: another process trains it.
    """
    from accelerate import PartialState

    def refuse() -> NoReturn:
        raise TrainingError(
            f"another training that runs now writes to {result}", fix="wait for it, stop it, or choose another --out"
        )

    if not PartialState().is_main_process:
        yield
        return
    with one_process_at_a_time(lock_of(result), refuse):
        yield


def lock_of(result: Path) -> Path:
    """The file that is there while a result is trained: beside a file, within a folder."""
    return result / ".training.lock" if result.is_dir() else result.with_name(f".{result.name}.lock")
