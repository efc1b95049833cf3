"""A folder with one lm-eval task of our own: its description and its items."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from focus_runtime.errors import InputError
from focus_runtime.files import cannot_write, replacing_folder


def write_task(out: str | os.PathLike[str], name: str, yaml: str, rows: Iterable[dict[str, Any]]) -> Path:
    """Write NAME.yaml and NAME.jsonl into a new folder, which appears whole or not at all.

    Raises:
        InputError: the folder exists or cannot be written.
    """
    target = Path(out)
    if target.exists():
        raise InputError(f"{target} is in use", expected="a new folder", fix="choose another folder")
    with replacing_folder(target, explain=cannot_write("choose another folder")) as work:
        (work / f"{name}.yaml").write_text(yaml, "utf-8")
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (work / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    return target
