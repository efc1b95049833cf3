"""Fit the constants of the cost model in `focus_runtime/attention/costs.py`, and say how often its choice is right.

Every setting is timed by each way of computing it; times are divided by what full attention with the same kernel takes
for one pair of tokens, and the terms of the model are fitted to them by least squares on relative errors. Only the
choice matters, so the fit is then moved to where the time lost by choosing wrongly is least.

    python benchmarks/fit_costs.py --out benchmarks/results/costs.json
    python benchmarks/fit_costs.py --refit benchmarks/results/costs.json    # measures nothing
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import operator
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from focus_runtime.attention import costs
from focus_runtime.attention.decomposed import decomposed_attention
from focus_runtime.attention.flash import causal_flash
from focus_runtime.attention.fused import fused_attention
from focus_runtime.attention.masked import masked_attention
from focus_runtime.attention.reference import Scoring
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.speed.layer import LayerSetting, balanced_membership, layer_inputs
from focus_runtime.measure.timing import in_turn, machine

LENGTHS = (512, 1024, 1536, 2048, 3072, 4096)
GROUPS = ((4, 1), (8, 1), (16, 1), (4, 2), (8, 2), (16, 2), (8, 3))
WINDOWS = (32, 128)
LONG_LENGTHS, LONG_GROUPS = (8192, 16384), ((4, 1), (4, 2), (8, 2), (16, 2))  # the fused kernel's two ways alone


def seed_of(length: int, groups: int, top_k: int) -> int:
    """Of a setting's random groups, which are the same whenever they are needed again."""
    return length + groups + top_k


def add_terms(rows: list[dict[str, Any]]) -> None:
    """The terms of the model for every setting, from its groups."""
    for row in rows:
        generator = torch.Generator().manual_seed(seed_of(row["tokens"], row["num_groups"], row["top_k"]))
        for heads in (12, 12, 12):  # as `layer_inputs` draws before the groups
            torch.randn(1, row["tokens"], heads, 64, generator=generator)
        membership = balanced_membership(row["tokens"], row["num_groups"], row["top_k"], generator)
        row["sizes"], row["class_terms"] = (
            costs.set_sizes(membership[0]),
            costs.class_terms(membership[0], PairRule(row["window"])),
        )


def _fused(qkv: tuple[Tensor, Tensor, Tensor], rule: PairRule, scoring: Scoring, membership: Tensor, mode: str) -> Any:
    return fused_attention(*qkv, membership, rule, scoring, mode=mode)


def measured(repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of every way for every setting, and the terms of the model."""
    rows = []
    short = itertools.product(LENGTHS, GROUPS, WINDOWS)
    long = itertools.product(LONG_LENGTHS, LONG_GROUPS, WINDOWS[-1:])
    for length, (groups, top_k), window in itertools.chain(short, long):
        setting = LayerSetting(num_groups=groups, top_k=top_k, window=window)
        q, k, v, membership = layer_inputs(setting, length, seed=seed_of(length, groups, top_k))
        everything = torch.ones_like(membership)
        rule, scoring = PairRule(window), Scoring(setting.head_size**-0.5)

        fused = partial(_fused, (q, k, v), rule, scoring)

        ways: dict[str, Callable[[], Any]] = {
            "flash full": lambda: causal_flash(q, k, v, scoring.scale),  # noqa: B023
            "masked": lambda: masked_attention(q, k, v, membership, rule, scoring),  # noqa: B023
            "decomposed": lambda: decomposed_attention(q, k, v, membership, rule, scoring.scale),  # noqa: B023
            "fused full": partial(fused, everything, "auto"),
            "by class": partial(fused, membership, "by class"),
            "dense": partial(fused, membership, "dense"),
        }
        if length in LONG_LENGTHS:
            ways = {name: way for name, way in ways.items() if name in ("fused full", "by class", "dense")}
        times = in_turn(ways, repeats, q.device)
        rows.append(
            {
                "tokens": length,
                "num_groups": groups,
                "top_k": top_k,
                "window": window,
                "ms": {name: spread.median for name, spread in times.items()},
            }
        )
        print(length, groups, top_k, window, {name: round(ms, 1) for name, ms in rows[-1]["ms"].items()}, flush=True)
    return rows


def relative_fit(terms: np.ndarray, target: np.ndarray) -> list[float]:
    """Non-negative factors of the terms with the least relative squared error."""
    return nnls(terms / target[:, None], np.ones(len(target)))[0].tolist()


def fit(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The constants of costs.py."""
    short = [row for row in rows if "masked" in row["ms"]]
    lengths = np.array([row["tokens"] for row in short], dtype=float)
    unit = np.array([row["ms"]["flash full"] for row in short]) / (lengths * (lengths + 1) / 2)
    sets = np.array([costs.decomposed_terms(row["sizes"], row["tokens"], row["window"]) for row in short])
    masked_pairs = np.array([costs.masked_term(row["tokens"]) for row in short])
    decomposed, masked_ms = (np.array([row["ms"][name] for row in short]) for name in ("decomposed", "masked"))
    pair, token, call, local = relative_fit(sets, decomposed / unit)
    (masked,) = relative_fit(masked_pairs[:, None], masked_ms / unit)
    lengths = np.array([row["tokens"] for row in rows], dtype=float)
    fused_unit = np.array([row["ms"]["fused full"] for row in rows]) / (lengths * (lengths + 1) / 2)
    by_class, dense_ms = (np.array([row["ms"][name] for row in rows]) for name in ("by class", "dense"))
    class_pair, copy, near = relative_fit(np.array([row["class_terms"] for row in rows]), by_class / fused_unit)
    (dense,) = relative_fit((lengths * lengths / 2)[:, None], dense_ms / fused_unit)
    return {
        "GROUP_PAIR": pair,
        "GROUP_TOKEN": token,
        "GROUP_CALL": call,
        "LOCAL_PAIR": local,
        "MASKED_PAIR": masked,
        "FUSED_LOCAL": near / class_pair,
        "FUSED_DENSE": dense / class_pair,
        "FUSED_COPY": copy / class_pair,
    }


def rounded(constants: dict[str, float]) -> dict[str, float]:
    """Two significant digits: more would be noise."""
    return {n: round(x, 1 - math.floor(math.log10(x))) if x > 0 else 0.0 for n, x in constants.items()}


def lost(rows: list[dict[str, Any]], constants: dict[str, float]) -> dict[str, list[float]]:
    """Time of the way the model chooses over the faster one's, per setting, with and without the fused kernel."""
    ratios: dict[str, list[float]] = {"fused": [], "without a compiler": []}
    for row in rows:
        ms, length, window = row["ms"], row["tokens"], row["window"]
        class_pairs, copied, local = row["class_terms"]
        by_class = class_pairs + constants["FUSED_COPY"] * copied + constants["FUSED_LOCAL"] * local
        pick = "by class" if by_class < constants["FUSED_DENSE"] * length * length / 2 else "dense"
        ratios["fused"].append(ms[pick] / min(ms["by class"], ms["dense"]))
        if "masked" not in ms:
            continue
        factors = [constants[name] for name in ("GROUP_PAIR", "GROUP_TOKEN", "GROUP_CALL", "LOCAL_PAIR")]
        decomposed = sum(map(operator.mul, factors, costs.decomposed_terms(row["sizes"], length, window)))
        masked = constants["MASKED_PAIR"] * costs.masked_term(length)
        pick = "decomposed" if decomposed < masked else "masked"
        ratios["without a compiler"].append(ms[pick] / min(ms["decomposed"], ms["masked"]))
    return ratios


def improved(rows: list[dict[str, Any]], constants: dict[str, float]) -> dict[str, float]:
    """Where the time lost is least: a grid over the fused kernel's three constants, single moves of the others."""

    def mean_loss(candidate: dict[str, float], name: str) -> float:
        return statistics.fmean(lost(rows, candidate)[name])

    grid = itertools.product(
        (0.0, 0.2, 0.4, 0.8, 1.2, 1.6, 2.0), (0.7, 0.8, 0.9, 1.0, 1.1), (0, 20, 40, 60, 80, 100, 150)
    )
    fused = ("FUSED_LOCAL", "FUSED_DENSE", "FUSED_COPY")
    trials = [{**constants, **dict(zip(fused, map(float, point), strict=True))} for point in grid]
    best = min([constants, *trials], key=lambda trial: mean_loss(trial, "fused"))
    others = [name for name in constants if name not in fused]
    least = mean_loss(best, "without a compiler")
    for name, factor in itertools.product(others, (0.5, 0.7, 0.85, 1.15, 1.4, 2.0)):
        trial = {**best, name: best[name] * factor}
        if (loss := mean_loss(trial, "without a compiler")) < least - 1e-4:
            best, least = trial, loss
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
                for row, v in zip(rows, values, strict=False)  # long rows, which come last, have no flash time
                if "flash full" in row["ms"]
            ),
        }
        for name, values in lost(rows, constants).items()
    }


def main() -> None:
    """Measure, fit, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--refit", type=Path, metavar="FILE", help="fit again from a result, in place")
    arguments = parser.parse_args()
    target = arguments.refit or arguments.out
    known: dict[str, Any] = json.loads(arguments.refit.read_text()) if arguments.refit else {"machine": machine()}
    rows: list[dict[str, Any]] = known["rows"] if arguments.refit else measured(arguments.repeats)
    add_terms(rows)
    constants = rounded(improved(rows, fit(rows)))
    result: dict[str, Any] = {
        "what": "one layer, 12 heads of 64, fp32, random groups; unit: full attention's time for one pair",
        "machine": known["machine"],
        "constants": constants,
        "choice": judge(rows, constants),
        "rows": rows,
    }
    print(json.dumps({"constants": constants, "choice": result["choice"]}, indent=1))
    if target is not None:
        keep = ("tokens", "num_groups", "top_k", "window", "ms")
        result["rows"] = [{name: row[name] for name in keep} for row in rows]
        target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
