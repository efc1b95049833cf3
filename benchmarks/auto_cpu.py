"""What `backend="auto"` chooses on this CPU, compared with full attention and with every backend it could have chosen.

One layer, 12 heads of 64, w = 128, balanced random groups, in fp32 and bf16, with a compiler and without. All ways take
turns, so that a drift of the machine's speed hits all.

    python benchmarks/auto_cpu.py --out benchmarks/results/FAMILY/auto_cpu.json
    python benchmarks/auto_cpu.py --packaged-compiler --out benchmarks/results/FAMILY/auto_cpu_packaged_compiler.json

"Without a compiler" stands for neither a compiler of the machine nor ziglang.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from focus_runtime import native
from focus_runtime.attention import dispatch
from focus_runtime.attention.dispatch import attend, choose_backend
from focus_runtime.attention.flash import causal_flash
from focus_runtime.attention.reference import Scoring
from focus_runtime.errors import InputError
from focus_runtime.measure.speed.layer import LayerSetting, layer_inputs
from focus_runtime.measure.timing import in_turn, machine

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
GROUPS = tuple(itertools.product((4, 8, 16), (1, 2, 3)))
DTYPES = ("float32", "bfloat16")
WAYS = {True: ("fused", "decomposed", "masked"), False: ("decomposed", "masked")}
SLOWER = 0.95  # of full attention's speed: what `auto` may not fall below


def chosen(query: Any, key: Any, membership: Any, setting: LayerSetting, *, compiler: bool) -> str:
    """What `auto` runs."""
    with mock.patch.object(dispatch, "fused_available", return_value=compiler):
        return choose_backend(query, key, membership, window=setting.window, num_sinks=setting.num_sinks)


def _possible(way: Callable[[], Any]) -> bool:
    try:
        way()
    except InputError:  # more sets of groups than it takes, one call each
        return False
    return True


def measure(setting: LayerSetting, length: int, repeats: int) -> dict[str, Any]:
    """Milliseconds of full attention and of every backend, and the choice with and without a compiler."""
    query, key, value, membership = layer_inputs(setting, length, seed=length)
    scoring = Scoring(setting.head_size**-0.5)
    ways: dict[str, Callable[[], Any]] = {"full": lambda: causal_flash(query, key, value, scoring.scale)}
    for name in WAYS[True]:
        inputs = (query, key, value, membership, setting.rule, scoring)
        ways[name] = partial(attend, *inputs, backend=name, return_lse=False)
    if not _possible(ways["decomposed"]):
        del ways["decomposed"]
    times = in_turn(ways, repeats, query.device)
    ms = {name: spread.median for name, spread in times.items()}
    row: dict[str, Any] = {
        "tokens": length,
        "num_groups": setting.num_groups,
        "top_k": setting.top_k,
        "dtype": setting.dtype,
        "ms": ms,
        "low": {name: spread.low for name, spread in times.items()},
    }
    for compiler, word in ((True, "auto"), (False, "auto_without_compiler")):
        name = chosen(query, key, membership, setting, compiler=compiler)
        best = min((way for way in WAYS[compiler] if way in ms), key=ms.__getitem__)
        row[word] = {
            "backend": name,
            "full_over_focus": ms["full"] / ms[name],
            "fastest": best,
            "time_over_fastest": ms[name] / ms[best],
        }
    return row


def judge(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How often `auto` is slower than full attention, and how far it is from the fastest choice."""
    verdict = {}
    for dtype, word in itertools.product(DTYPES, ("auto", "auto_without_compiler")):
        here = [row[word] for row in rows if row["dtype"] == dtype]
        if here:
            verdict[f"{dtype}, {word}"] = {
                "settings": len(here),
                "slower_than_full_by_over_5_percent": sum(one["full_over_focus"] < SLOWER for one in here),
                "slowest_against_full": min(one["full_over_focus"] for one in here),
                "worst_time_over_fastest": max(one["time_over_fastest"] for one in here),
            }
    return verdict


def main() -> None:
    """Measure, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument(
        "--packaged-compiler",
        action="store_true",
        help="as on a machine without a compiler, where ziglang is installed",
    )
    arguments = parser.parse_args()
    if arguments.packaged_compiler:
        native.COMPILERS = ()
    rows = []
    for dtype, length, (groups, top_k) in itertools.product(arguments.dtype or DTYPES, LENGTHS, GROUPS):
        if length > arguments.longest:
            continue
        repeats = 15 if length <= 1024 else 7 if length <= 4096 else 3
        row = measure(LayerSetting(num_groups=groups, top_k=top_k, dtype=dtype), length, repeats)
        rows.append(row)
        with_compiler, without = row["auto"], row["auto_without_compiler"]
        print(
            f"{dtype} {length:>6} K={groups:<2} k={top_k} "
            + " ".join(f"{name} {ms:.2f}" for name, ms in row["ms"].items())
            + f"  auto {with_compiler['backend']} {with_compiler['full_over_focus']:.2f}x"
            + f", without {without['backend']} {without['full_over_focus']:.2f}x",
            flush=True,
        )
    result = {
        "what": "one layer, 12 heads of 64, w=128, K balanced random groups, k a token",
        "machine": machine() | {"compiler": "ziglang" if arguments.packaged_compiler else "the machine's own"},
        "verdict": judge(rows),
        "rows": rows,
    }
    print(json.dumps(result["verdict"], indent=1))
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
