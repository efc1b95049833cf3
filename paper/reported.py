"""Numbers the paper reports, from reported.toml: `REPORTED["speedup"][8][1024]`."""

import tomllib
from pathlib import Path
from typing import Any


def _numbered(value: Any) -> Any:
    """The same with keys in digits, which TOML has as text, as whole numbers."""
    if not isinstance(value, dict):
        return value
    return {int(key) if key.isdigit() else key: _numbered(one) for key, one in value.items()}


REPORTED: dict[str, Any] = _numbered(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")))
