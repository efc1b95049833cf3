"""A page -> PDF by the Chrome or Chromium that draws the figures."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from focus_explorer.errors import InputError
from focus_runtime.files import replacing

TIMEOUT = 120.0  # seconds


def browser() -> str | None:
    """Path of a Chrome, Chromium or one of its kind; None where there is none."""
    from choreographer.browsers.chromium import Chromium

    path = Chromium.find_browser(skip_local=False)
    return str(path) if path else None


def print_pdf(page: Path, out: Path) -> Path:
    """Print an HTML file with its styles for print.

    Raises:
        InputError: there is no browser, it fails, or the file cannot be written.
    """
    program = browser()
    if program is None:
        raise InputError(
            "a PDF needs Chrome or Chromium, and none was found", fix="install it (on Debian: apt install chromium)"
        )
    with replacing(os.path.expanduser(out)) as part, tempfile.TemporaryDirectory(prefix="focus-print-") as profile:
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-extensions",
            f"--user-data-dir={profile}",
            "--no-pdf-header-footer",
            f"--print-to-pdf={part}",
            page.resolve().as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"the browser that prints the PDF failed: {type(error).__name__}") from error
        data = part.read_bytes()
        if done.returncode or not data.startswith(b"%PDF"):
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InputError(f"the browser that prints the PDF failed: {(lines or ['no reason given'])[-1][:200]}")
        part.write_bytes(re.sub(rb"D:\d{14}", b"D:20000101000000", data))
    return out
