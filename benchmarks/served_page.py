"""A page that `focus-explorer serve` serves in a process of its own, for benchmarks that drive it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LONGEST_START = 90.0  # seconds


@dataclass(frozen=True)
class Served:
    """A running page.

    Attributes:
        address: of the page, without a slash at its end.
        pid: of the server.
        log: file that it writes to.
    """

    address: str
    pid: int
    log: Path


@contextmanager
def served(database: Path, port: int) -> Iterator[Served]:
    """Serve a page on this database until the block ends.

    Args:
        database: DuckDB file.
        port: first port that is tried.
    """
    command = [sys.executable, "-m", "focus_explorer.cli", "serve", "--db", str(database), "--port", str(port)]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.NamedTemporaryFile(suffix=".log") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | paths)
        try:
            log = Path(output.name)
            yield Served(_address(server, log), server.pid, log)
        finally:
            server.terminate()
            server.wait(timeout=30)


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + LONGEST_START
    while time.monotonic() < deadline and server.poll() is None:
        if match := re.search(r"http://[\d.]+:\d+", log.read_text()):
            return match[0]
        time.sleep(0.05)
    raise SystemExit(f"error: the page was not served: {log.read_text()}")
