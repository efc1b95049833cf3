"""What trainings and searches share while they run: one writer at a time, a stop that keeps the work, the device."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from focus_explorer.errors import InputError, StoreBusyError, TrainingError
from focus_explorer.usecases.training.request import TrainRequest
from focus_runtime.files import cannot_write, check_writable, check_writable_folder, one_process_at_a_time
from focus_runtime.store.database import Database

FOLDER = cannot_write("choose a writable --out folder", problem="cannot write to")


@contextmanager
def one_writer(result: Path) -> Iterator[None]:
    """Refuse a second training of a result while the block runs; of one training's processes the first asks."""
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
    """The file that exists while a result is trained: beside a file, within a folder."""
    return result / ".training.lock" if result.is_dir() else result.with_name(f".{result.name}.lock")


@contextmanager
def claimed(request: TrainRequest) -> Iterator[None]:
    """Check that the result can be written and whether there is something to resume; keep it from a second training."""
    if request.trains_weights:
        check_writable_folder(request.result, explain=FOLDER)
    elif request.result.is_dir():
        raise InputError(f"cannot write {request.result}: it is a folder", fix="choose a file name for --out")
    else:
        check_writable(request.result, explain=cannot_write("choose a writable folder for --out"))
    with one_writer(request.result):
        if request.trains_weights and not (request.resume and request.can_resume):
            _check_empty(request.result, besides=request.checkpoint)
        kept = request.checkpoint
        if request.resume and not request.can_resume:
            raise TrainingError(
                f"there is no checkpoint {kept} to continue from",
                expected="the --out of a training that was stopped",
                fix="start without --resume",
            )
        if request.can_resume and not request.resume:
            raise TrainingError(
                f"{kept} keeps a training that was stopped",
                fix="add --resume to continue it, or delete it to start over",
            )
        yield


def _check_empty(out: Path, besides: Path) -> None:
    try:
        others = [path for path in out.iterdir() if path not in (besides, lock_of(out))]
    except OSError as error:
        raise FOLDER(out, error) from error
    if others:
        raise InputError(f"the folder {out} is not empty", expected="a new folder", fix="choose another --out")


def check_database(database: Database) -> None:
    """Refuse a foreign or unwritable file before the model is loaded; one that is only busy may be free later."""
    with suppress(StoreBusyError), Database(database.path, wait=1.0).write():
        pass


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM set the event, so that the step under way is finished; a second one stops at once.

    So does SIGHUP (a lost terminal), unless `nohup` has it ignored; it may come twice.
    """
    requested, hang_up = threading.Event(), getattr(signal, "SIGHUP", None)  # Windows has none
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return

    def handle(number: int, frame: Any) -> None:
        if requested.is_set() and number != hang_up:
            raise KeyboardInterrupt
        requested.set()
        with suppress(OSError):  # Ctrl-C ends `| tee log` too: nobody reads this, and the step must be finished
            print("\nstopping after this step; once more stops at once", file=sys.stderr)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:
        numbers.append(hang_up)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def training_device(requested: str) -> str:
    """The device for this process's copy of the model; "auto" is the one that accelerate gives it."""
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
