"""Stored settings and layers -> which pairs each layer allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from focus_runtime.mask.rule import PairRule


def pair_rules(config: Mapping[str, Any], layers: pa.Table) -> dict[int, PairRule]:
    """Rules by layer number.

    Args:
        config: settings a run or corpus was executed with.
        layers: rows with `layer` and, unless written by 0.1, `sliding_window`.
    """
    reaches = layers["sliding_window"].to_pylist() if "sliding_window" in layers.column_names else [None] * len(layers)
    rules = zip(layers["layer"].to_pylist(), reaches, strict=True)
    return {layer: PairRule(config["window"], config["num_sinks"], reach) for layer, reach in rules}
