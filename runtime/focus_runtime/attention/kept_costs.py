"""Costs measured on this machine, kept in the user's cache as JSON, one small file each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from focus_runtime.files import default_cache_dir, replacing

Costs = TypeVar("Costs")


def read_costs(name: str, make: Callable[..., Costs]) -> Costs | None:
    """What was kept under a name; None where nothing is there yet, or it is damaged, so that it is measured again.

    Args:
        name: of the file, without its ending.
        make: called with the fields that were kept.
    """
    try:
        return make(**json.loads(_path(name).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def keep_costs(name: str, fields: dict[str, Any]) -> None:
    """Keep costs for the next process; in a home that cannot be written it measures again.

    Args:
        name: of the file, without its ending.
        fields: what `read_costs` hands to its `make`.
    """
    try:
        with replacing(_path(name), explain=None) as fresh:
            fresh.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    except OSError:
        pass


def _path(name: str) -> Path:
    return default_cache_dir() / "costs" / f"{name}.json"
