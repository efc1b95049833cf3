"""figure1: quality after fine-tuning against the speed of one layer, every method of table 1."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from focus_runtime.errors import InputError
from focus_runtime.measure.speed import layer_speed
from focus_runtime.measure.timing import in_turn
from paper.methods.pairs import Reading
from paper.reports.adaptation import sparse_methods, tuned_row, value_of
from paper.reports.lab import Lab
from paper.reports.report import Claim, Column, Figure, Report, Series
from paper.reports.timing import dtype_for, layer_setting, times_as_fast
from paper.reports.twins import GROUPS, twins, two_phase

REPEATS = 3
LONGEST = {"tiny": 1024, "small": 16_384, "paper": 1_048_576}  # tokens of the timed layer


def figure1(lab: Lab) -> Report:
    """Fine-tuned methods: perplexity against times as fast as full attention."""
    length = LONGEST.get(lab.scale.name, 16_384)
    rows: list[dict[str, Any]] = [{**tuned_row(lab, "full fine-tuning", None), "speed": 1.0}]
    for name, method in sparse_methods(lab):
        row = tuned_row(lab, name, method)
        rows.append({**row, "speed": _speed(lab, name, method, length)})
    _, *focused = twins(
        lab, two_phase(lab, "fine-tuned in two phases", lab.model, lab.model_name), lab.scale.seeds[0]
    ).rows
    for row, top_k in zip(focused, (2, 1), strict=True):
        setting = layer_setting(lab, GROUPS, top_k)
        measured = layer_speed(setting, length, repeats=REPEATS, seed=length, device=str(lab.device))
        lab.log(f"one layer, {length:,} tokens, Focus k={top_k}: {measured['full_over_focus']:.2f} times as fast")
        speed = times_as_fast(measured["full_ms"], measured["focus_ms"])
        rows.append({**row, "method": f"Focus K={GROUPS}, k={top_k}, fine-tuned", "speed": speed})
    ahead = [row for row in rows[1:-2] if _dominates(row, rows[-1]) or _dominates(row, rows[-2])]
    measured_all = all(row["speed"] is not None for row in rows)
    return Report(
        "figure1",
        f"Quality after fine-tuning against the speed of one layer at {length:,} tokens",
        [
            Column("method", "method"),
            Column("ppl", "perplexity"),
            Column("relative", "against full attention", percent=True, signed=True),
            Column("retained", "pairs kept", 1, percent=True),
            Column("dominance", "largest group", 1, percent=True),
            Column("speed", "one layer, times as fast"),
        ],
        rows,
        {
            **lab.base_setting(),
            "steps": {"centroids": lab.scale.steps, "weights": lab.scale.weight_steps},
            "layer dtype": dtype_for(lab),
            "groups": GROUPS,
            "tokens of the layer": length,
            "repeats": REPEATS,
            "seeds": lab.scale.seeds[:1],
        },
        [
            "The difference of a baseline is to full attention in fp32 as it is, of Focus to its twin, which was "
            "fine-tuned with full attention.",
            "Baselines are plain PyTorch, Focus takes the fastest kernel of this machine; a method's own kernels would "
            "move its point to the right. Random inputs and balanced random groups.",
        ],
        [
            Claim(
                "no other method is both faster and better than Focus",
                not ahead if measured_all else None,
                "both faster and better: " + (", ".join(row["method"] for row in ahead) or "none"),
                "margin: by medians and means; one seed",
            )
        ],
        _figure(rows),
    )


def _dominates(one: dict[str, Any], focus: dict[str, Any]) -> bool:
    if one["speed"] is None:
        return False
    return value_of(one) < value_of(focus) and value_of(one, "speed") > value_of(focus, "speed")


@torch.no_grad()
def _speed(lab: Lab, name: str, method: Any, length: int) -> Any:
    """Times as fast as full attention, one layer, measured in turn; None where the memory does not suffice."""
    setting = layer_setting(lab, GROUPS, 1)
    generator = torch.Generator().manual_seed(length)
    kind = getattr(torch, setting.dtype)

    def draw(heads: int) -> torch.Tensor:
        made = torch.randn(1, heads, length, setting.head_size, generator=generator)
        return made.to(lab.device, kind)

    query, key, value = draw(setting.heads), draw(setting.key_heads), draw(setting.key_heads)
    scale = setting.head_size**-0.5
    state = method.start(0, query, key)
    if hasattr(method, "observe"):
        method.observe(state, query, key)

    def full() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=True
        )

    def sparse() -> torch.Tensor:
        attended: torch.Tensor = method.attend(
            query, key, value, state=state, scale=scale, softcap=None, reading=Reading()
        )
        return attended

    try:
        times = in_turn({"full": full, "sparse": sparse}, REPEATS, lab.device)
    except (RuntimeError, MemoryError, InputError) as error:
        lab.log(f"one layer, {length:,} tokens, {name}: not timed, {str(error).splitlines()[0]}")
        return None
    speed = times_as_fast(asdict(times["full"]), asdict(times["sparse"]))
    lab.log(f"one layer, {length:,} tokens, {name}: {speed.value:.2f} times as fast")
    return speed


def _figure(rows: list[dict[str, Any]]) -> Figure:
    series = [
        Series(row["method"], [value_of(row, "speed")], [value_of(row)]) for row in rows if row["speed"] is not None
    ]
    return Figure("line", "one layer, times as fast as full attention", "perplexity", series, log_x=True, log_y=True)
