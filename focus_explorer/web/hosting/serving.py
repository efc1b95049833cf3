"""The process around a page: where its uploads lie, and serving until SIGTERM or SIGINT, which first end the jobs."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from focus_explorer.settings import process_runs, set_upload_folder
from focus_explorer.usecases.jobs import stop_all_jobs
from focus_explorer.usecases.users import LOG

_NAME = re.compile(r"focus-explorer-uploads-(\d+)-\w+")
LEAVING_SECONDS = 10.0  # for jobs to reach their next step
LAST_SECONDS = 5.0  # after that, for the server and all that is left
LOOK_SECONDS = 1.0  # between looks at signals that came to another thread


def private_uploads(parent: str | Path | None = None) -> Path:
    """Make the folder of uploads, for this user alone and gone with the server, before Gradio is imported.

    What servers that were killed left behind is removed.
    """
    parent = Path(parent or tempfile.gettempdir())
    sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"focus-explorer-uploads-{os.getpid()}-", dir=parent))  # mode 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    set_upload_folder(folder)
    return folder


def sweep(parent: Path) -> None:
    """Remove this user's folders of servers that no longer run."""
    for folder in parent.glob("focus-explorer-uploads-*"):
        named = _NAME.fullmatch(folder.name)
        if named and not folder.is_symlink() and _is_ours(folder) and not process_runs(int(named[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.getuid()
    except (OSError, AttributeError):  # gone meanwhile, or a system without users
        return False


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """SIGTERM and SIGINT set the event; a second one ends the program at once.

    Where SIGINT was ignored at the start, as in a shell script's background job, it stays without effect here. But it
    gets a handler, since processes started from here inherit only what is ignored: trainings are stopped by SIGINT.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def stop(number: int, frame: Any) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    def nothing(number: int, frame: Any) -> None:
        pass

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    handlers = {signal.SIGTERM: stop, signal.SIGINT: nothing if ignored else stop}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for(stopping: threading.Event) -> None:
    """Wait until the event of `stop_signals` is set.

    Looking now and then lets the main thread run the handler of a signal that reached another thread.
    """
    while not stopping.wait(LOOK_SECONDS):
        pass


def end_jobs() -> None:
    """Request that all background work stops, and wait for it; what it has not stored by then is dropped."""
    left = stop_all_jobs(LEAVING_SECONDS)
    if left:
        LOG.warning(f"ended during {', '.join(sorted(job.kind for job in left))}; no partial results are stored")


def exit_at_last(seconds: float = LEAVING_SECONDS + LAST_SECONDS) -> None:
    """End this process after so many seconds even where a thread is stuck; what is stored is whole at any moment."""

    def end() -> None:
        LOG.warning("ended with work that did not stop")
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
