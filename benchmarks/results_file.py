"""Results that long benchmarks write as they go, and how their tables show them."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def continued(
    out: Path, identity: Mapping[str, Any], result: dict[str, Any], parser: argparse.ArgumentParser
) -> dict[str, Any]:
    """What was measured before, or the empty result where nothing was; ends the program where it was another setting.

    Args:
        out: file of the result.
        identity: what the earlier result must have been measured with.
        result: to begin with.
        parser: reports the error.
    """
    if not out.exists():
        return result
    before: dict[str, Any] = json.loads(out.read_text())
    if any(before.get(name) != value for name, value in identity.items()):
        parser.error(f"{out} holds another setting; choose another --out")
    return before


def percent(interval: Mapping[str, float]) -> str:
    """A loss difference in nats with its ends, as a change of perplexity in %."""
    value, low, high = (100 * math.expm1(interval[name]) for name in ("value", "low", "high"))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
