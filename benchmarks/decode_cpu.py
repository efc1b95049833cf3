"""One decode step of one attention layer on the CPU: Focus against full attention, in one run.

They take turns, so that a drift of the machine's speed hits all. Full attention is the faster of torch's CPU flash
kernel and plain matrix products. Focus runs twice: as `auto` runs it, and by gathering with torch, as without a
compiler. A Focus step includes finding the keys; routing the new token is not part of it, nor is what the cache does
(a DynamicCache copies all keys and values at every step, a StaticCache does not).

    python benchmarks/decode_cpu.py --out benchmarks/results/FAMILY/decode_cpu.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention import focus_attention
from focus_runtime.attention.decode import decode_attention
from focus_runtime.attention.dispatch import attend, choose_backend
from focus_runtime.attention.masked import masked_attention
from focus_runtime.attention.reference import Scoring
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.timing import in_turn, machine

HEADS, HEAD_SIZE, GROUPS, WINDOW, SINKS = 12, 64, 8, 128, 4
PAST = (1024, 8192, 32768, 65536)
CROSS_OVER = (256, 512, 1024, 1536, 2048, 8192)
SCALE = HEAD_SIZE**-0.5
SCORING = Scoring(SCALE)


def inputs(past: int, dtype: torch.dtype, top_k: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One query, `past` + 1 keys and values, and balanced random membership of `top_k` neighbouring groups."""
    generator = torch.Generator().manual_seed(past)
    q = torch.randn(1, HEADS, 1, HEAD_SIZE, generator=generator).to(dtype)
    k, v = (torch.randn(1, HEADS, past + 1, HEAD_SIZE, generator=generator).to(dtype) for _ in range(2))
    group = torch.randperm(past + 1, generator=generator) % GROUPS
    one = torch.ones_like(group)
    membership = sum(torch.bitwise_left_shift(one, (group + step) % GROUPS) for step in range(top_k))
    assert isinstance(membership, Tensor)
    return q, k, v, membership[None]


def full_attention(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Callable[[], Any]]:
    """Two ways to attend to everything."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return {
        "full_flash": lambda: kernel(q, k, v, 0.0, False, scale=SCALE),
        "full_matmul": lambda: torch.softmax(q @ k.transpose(-1, -2) * SCALE, dim=-1) @ v,
    }


def as_a_layer_does(q: Tensor, k: Tensor, v: Tensor, membership: Tensor, settings: dict[str, Any]) -> Any:
    """Choose a backend and run it; `focus_attention` also checks its arguments, which costs some 0.03 ms."""
    backend = choose_backend(q, k, membership, **settings)
    return attend(q, k, v, membership, PairRule(**settings), SCORING, backend=backend, return_lse=False)


def step(past: int, repeats: int, dtype: torch.dtype) -> dict[str, Any]:
    """A Focus step compared with a full one."""
    q, k, v, membership = inputs(past, dtype)
    settings: dict[str, Any] = {"window": WINDOW, "num_sinks": SINKS}
    ways: dict[str, Callable[[], Any]] = {
        **full_attention(q, k, v),
        "focus": lambda: as_a_layer_does(q, k, v, membership, settings),
        "focus_gathered": lambda: attend(q, k, v, membership, PairRule(**settings), SCORING, backend="decode"),
    }
    times = in_turn(ways, repeats, q.device)
    ms = {name: {"median": t.median, "low": t.low, "high": t.high} for name, t in times.items()}
    position = torch.arange(past + 1)
    seen = ((membership[0] & membership[0, -1]) != 0) | (past - position <= WINDOW) | (position < SINKS)
    full = min(ms["full_flash"]["median"], ms["full_matmul"]["median"])
    exact = focus_attention(q.double(), k.double(), v.double(), membership, backend="reference", **settings)
    out = focus_attention(q, k, v, membership, **settings)
    assert isinstance(exact, Tensor)
    assert isinstance(out, Tensor)
    return {
        "past_tokens": past,
        "dtype": str(dtype).removeprefix("torch."),
        "keys_attended": int(seen.sum()),
        "milliseconds": ms,
        "full_over_focus": full / ms["focus"]["median"],
        "full_over_focus_gathered": full / ms["focus_gathered"]["median"],
        "ideal": (past + 1) / int(seen.sum()),
        "microseconds_per_attended_key": 1000 * ms["focus"]["median"] / int(seen.sum()),
        "max_abs_error_vs_float64": (out.double() - exact).abs().max().item(),
    }


def cross_over(past: int, top_k: int, repeats: int) -> dict[str, Any]:
    """Gathering and masking at one length and share of keys attended."""
    q, k, v, membership = inputs(past, torch.float32, top_k)
    settings = (PairRule(min(WINDOW, past // 16), SINKS), SCORING)
    share = ((membership & membership[:, -1:]) != 0).float().mean().item()
    times = in_turn(
        {
            "gathered": lambda: decode_attention(q, k, v, membership, *settings, gather_from=0, gather_below=1.0),
            "all_keys": lambda: decode_attention(q, k, v, membership, *settings, gather_below=0.0),
            "masked": lambda: masked_attention(q, k, v, membership, *settings),
        },
        repeats,
        q.device,
    )
    ms = {name: spread.median for name, spread in times.items()}
    return {"past_tokens": past, "share_attended": share, "milliseconds": ms}


@torch.no_grad()
def main() -> None:
    """Run everything and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for past in PAST:
            rows.append(step(past, arguments.repeats, dtype))
            row = rows[-1]
            print(
                f"{row['dtype']:>8} {past:>6} past tokens, {row['keys_attended']:>5} attended: "
                f"{row['milliseconds']['focus']['median']:.3f} ms, {row['full_over_focus']:.2f}x full, "
                f"gathered {row['full_over_focus_gathered']:.2f}x",
                flush=True,
            )
    shares = []
    for past in CROSS_OVER:
        for top_k in (1, 2, 3):
            shares.append(cross_over(past, top_k, arguments.repeats))
            row = shares[-1]
            print(f"{past:>6} keys, {row['share_attended']:.2f} attended: {row['milliseconds']}", flush=True)
    result = {
        "what": "one decode step of one layer, 12 heads of 64, K=8 balanced random groups, k=1, w=128, 4 sinks",
        "machine": machine(),
        "steps": rows,
        "cross_over": shares,
    }
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
