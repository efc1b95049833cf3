"""Fit the constants of the cost model in `focus_runtime/attention/costs.py`, and say how often its choice is right.

Every setting is timed by each way of computing it; times are divided by what full attention with the same kernel takes
for one pair of tokens, and the terms of the model are fitted to them by least squares on relative errors. Only the
choice matters, so the fit is then moved, one constant at a time, wherever that shortens the time lost by choosing
wrongly.

    python benchmarks/fit_costs.py --out benchmarks/results/costs.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from focus_runtime.attention import costs
from focus_runtime.attention.decomposed import decomposed_attention
from focus_runtime.attention.flash import causal_flash
from focus_runtime.attention.fused import fused_attention
from focus_runtime.attention.masked import masked_attention
from focus_runtime.bench import LayerSetting, layer_inputs, machine, milliseconds

LENGTHS = (512, 1024, 1536, 2048, 3072, 4096)
GROUPS = ((4, 1), (8, 1), (16, 1), (4, 2), (8, 2), (16, 2), (8, 3))
WINDOWS = (32, 128)
TILE = 16  # queries of a vector in the fused kernel


def class_terms(membership: torch.Tensor, window: int) -> tuple[float, float, float]:
    """Terms of the fused kernel's pass by class: pairs, queries in tiles, local pairs."""
    signatures, counts = torch.unique(membership[0], return_counts=True)
    meets = ((signatures[:, None] & signatures[None, :]) != 0).double() @ counts.double()
    queries = torch.ceil(counts / TILE) * TILE
    length = membership.shape[1]
    return (queries * meets / 2).sum().item(), queries.sum().item(), length * min(window + 32, length)


def measured(repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of every way for every setting, and the terms of the model."""
    rows = []
    for length, (groups, top_k), window in itertools.product(LENGTHS, GROUPS, WINDOWS):
        setting = LayerSetting(num_groups=groups, top_k=top_k, window=window)
        q, k, v, membership = layer_inputs(setting, length, seed=length + groups + top_k)
        everything = torch.ones_like(membership)
        options: dict[str, Any] = {"window": window, "scale": setting.head_size**-0.5}

        def fused(groups_of: torch.Tensor, mode: str, options: dict[str, Any] = options, qkv: Any = (q, k, v)) -> Any:
            return fused_attention(*qkv, groups_of, mode=mode, **options)

        ways: dict[str, Callable[[], Any]] = {
            "flash full": lambda: causal_flash(q, k, v, options["scale"]),  # noqa: B023
            "masked": lambda: masked_attention(q, k, v, membership, **options),  # noqa: B023
            "decomposed": lambda: decomposed_attention(q, k, v, membership, **options),  # noqa: B023
            "fused full": lambda: fused(everything, "auto"),  # noqa: B023
            "by class": lambda: fused(membership, "by class"),  # noqa: B023
            "dense": lambda: fused(membership, "dense"),  # noqa: B023
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats + 1):
            for name, way in ways.items():
                times[name].append(milliseconds(way, q.device))
        sizes = costs.set_sizes(membership[0])
        assert sizes is not None
        rows.append({
            "tokens": length, "num_groups": groups, "top_k": top_k, "window": window,
            "ms": {name: statistics.median(values[1:]) for name, values in times.items()},
            "sizes": sizes, "class_terms": class_terms(membership, window),
        })  # fmt: skip
        print(length, groups, top_k, window, {name: round(ms, 1) for name, ms in rows[-1]["ms"].items()}, flush=True)
    return rows


def relative_fit(terms: np.ndarray, target: np.ndarray) -> list[float]:
    """Non-negative factors of the terms with the least relative squared error."""
    return nnls(terms / target[:, None], np.ones(len(target)))[0].tolist()


def fit(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The constants of costs.py."""
    pairs = np.array([row["tokens"] * (row["tokens"] + 1) / 2 for row in rows])
    times = {name: np.array([row["ms"][name] for row in rows]) for name in rows[0]["ms"]}
    unit, fused_unit = times["flash full"] / pairs, times["fused full"] / pairs
    lengths = np.array([row["tokens"] for row in rows], dtype=float)
    reach = np.array([min(row["window"] + 64, row["tokens"]) for row in rows])
    sets = np.array(
        [(sum(s * (s + 1) / 2 for s in row["sizes"]), sum(row["sizes"]), len(row["sizes"])) for row in rows]
    )
    pair, token, call, local = relative_fit(np.column_stack([sets, lengths * reach]), times["decomposed"] / unit)
    (masked,) = relative_fit((lengths * (lengths + costs.MASKED_BLOCK) / 2)[:, None], times["masked"] / unit)
    by_class = np.array([row["class_terms"] for row in rows])
    class_pair, tile, near = relative_fit(by_class, times["by class"] / fused_unit)
    (dense,) = relative_fit((lengths * lengths / 2)[:, None], times["dense"] / fused_unit)
    return {
        "GROUP_PAIR": pair, "GROUP_TOKEN": token, "GROUP_CALL": call, "LOCAL_PAIR": local, "MASKED_PAIR": masked,
        "FUSED_LOCAL": near / class_pair, "FUSED_DENSE": dense / class_pair, "FUSED_TILE": tile / class_pair,
    }  # fmt: skip


def rounded(constants: dict[str, float]) -> dict[str, float]:
    """Two significant digits: more would be noise."""
    return {n: round(x, 1 - math.floor(math.log10(x))) if x > 0 else 0.0 for n, x in constants.items()}


def lost(rows: list[dict[str, Any]], constants: dict[str, float]) -> dict[str, list[float]]:
    """Time of the way the model chooses over the faster one's, per setting, with and without the fused kernel."""
    found: dict[str, list[float]] = {"fused": [], "without a compiler": []}
    for row in rows:
        ms, length, window = row["ms"], row["tokens"], row["window"]
        class_pairs, queries, local = row["class_terms"]
        by_class = class_pairs + constants["FUSED_TILE"] * queries + constants["FUSED_LOCAL"] * local
        pick = "by class" if by_class < constants["FUSED_DENSE"] * length * length / 2 else "dense"
        found["fused"].append(ms[pick] / min(ms["by class"], ms["dense"]))
        inside = sum(s * (s + 1) / 2 for s in row["sizes"])
        decomposed = (
            constants["GROUP_PAIR"] * inside + constants["GROUP_TOKEN"] * sum(row["sizes"])
            + constants["GROUP_CALL"] * len(row["sizes"])
            + constants["LOCAL_PAIR"] * length * min(window + 64, length)
        )  # fmt: skip
        masked = constants["MASKED_PAIR"] * length * (length + costs.MASKED_BLOCK) / 2
        pick = "decomposed" if decomposed < masked else "masked"
        found["without a compiler"].append(ms[pick] / min(ms["decomposed"], ms["masked"]))
    return found


def improved(rows: list[dict[str, Any]], constants: dict[str, float]) -> dict[str, float]:
    """Move one constant at a time while the mean loss falls by more than noise."""

    def mean_loss(candidate: dict[str, float]) -> float:
        return sum(statistics.fmean(values) for values in lost(rows, candidate).values())

    best, least = constants, mean_loss(constants)
    for _ in range(10):
        before = least
        for name, factor in itertools.product(constants, (0.5, 0.7, 0.85, 1.15, 1.4, 2.0)):
            candidate = {**best, name: best[name] * factor}
            if (loss := mean_loss(candidate)) < least - 1e-4:
                best, least = candidate, loss
        if least == before:
            break
    return best


def judge(rows: list[dict[str, Any]], constants: dict[str, float]) -> dict[str, Any]:
    """How the model's choice compares with the faster of the two ways, and with full attention."""
    ways = {"fused": ("by class", "dense"), "without a compiler": ("masked", "decomposed")}
    return {
        name: {
            "settings": len(values),
            "within_5_percent_of_the_best": sum(v <= 1.05 for v in values),
            "worst": max(values),
            "slower_than_full_by_over_5_percent": sum(
                row["ms"]["flash full"] * 1.05 < min(row["ms"][way] for way in ways[name]) * v
                for row, v in zip(rows, values, strict=True)
            ),
        }
        for name, values in lost(rows, constants).items()
    }


def main() -> None:
    """Measure, fit, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows = measured(arguments.repeats)
    constants = rounded(improved(rows, fit(rows)))
    result = {
        "what": "one layer, 12 heads of 64, fp32, random groups; unit: full attention's time for one pair",
        "machine": machine(), "constants": constants, "choice": judge(rows, constants), "rows": rows,
    }  # fmt: skip
    print(json.dumps({"constants": constants, "choice": result["choice"]}, indent=1))
    if arguments.out is not None:
        for row in rows:  # hundreds of small numbers say less than their count and sum
            sizes = row.pop("sizes")
            row["sets"], row["entries"] = len(sizes), sum(sizes)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
