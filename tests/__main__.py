"""Runs the tests by folder, a process each: `python -m tests [arguments of pytest]`.

Importing torch, transformers and Gradio takes a process some twenty seconds. They are imported once here, and each
folder's process is forked from that.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores; threads of torch would not be forked

import pytest

import tests.conftest  # noqa: F401  sets what libraries read when they are imported
from focus_explorer.web.gradio_internals import import_gradio
from tests.helpers import ROOT

LONGEST = (
    "tests/browser",
    "tests/explorer/usecases",
    "tests/explorer/cli",
    "tests/explorer",
    "tests/security",
    "tests",
    "tests/runtime/composition",
    "tests/runtime/attention",
)  # one that began last would keep a single core at work
AT_ONCE = (os.cpu_count() or 1) + 1  # a test of the page waits for the browser


def folders() -> dict[str, list[str]]:
    """The test files of every folder, those below its second level with it; folders that take longest come first."""
    files: dict[str, list[str]] = {folder: [] for folder in LONGEST}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        parts = path.relative_to(ROOT).parts
        files.setdefault("/".join(parts[:-1][:3]), []).append("/".join(parts))
    return files


def import_libraries() -> None:
    """Import the product, and with it what it needs."""
    import_gradio()
    for package in ("focus_runtime", "focus_explorer"):
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    gc.freeze()


def start(folder: str, files: list[str], arguments: list[str], output: Path) -> int:
    """Run pytest in a forked process that writes into the file `output`; returns its process id."""
    process = os.fork()
    if not process:
        with output.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.nice(0 if folder == LONGEST[0] else 5)
        code = pytest.main([*arguments, *files])
        sys.stdout.flush()
        os._exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code))
    return process


def run(arguments: list[str], outputs: Path) -> list[str]:
    """The folders of which a test failed; what pytest said of each is printed when it ends."""
    waiting, running, failed = list(folders().items()), {}, []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            folder, files = waiting.pop(0)
            output = outputs / folder.replace("/", "-")
            running[start(folder, files, arguments, output)] = folder, output, time.monotonic()
        process, status = os.wait()
        folder, output, began = running.pop(process)
        print(output.read_text(encoding="utf-8", errors="replace"), end="")
        print(f"{folder}: {'failed' if status else 'passed'} in {time.monotonic() - began:.0f} s", flush=True)
        failed += [folder] if status else []
    return failed


def main(arguments: list[str]) -> int:
    """Exit code: 1 where a test failed, else 0."""
    os.chdir(ROOT)
    import_libraries()
    with tempfile.TemporaryDirectory() as outputs:
        failed = run(arguments, Path(outputs))
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
