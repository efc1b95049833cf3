"""Figure 1: quality after fine-tuning against the speed of one layer, every method of table 1."""

from dataclasses import asdict

import torch

from focus_runtime.errors import InputError
from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.timing import in_turn
from paper.lab import shared
from paper.lab.lab import Lab
from paper.lab.shared import value_of
from paper.lab.timing import layer_dtype, layer_setting, layer_times, times_as_fast
from paper.lab.twins import GROUPS, twins, two_phase
from paper.methods import Call, Method
from paper.output.report import Column, Figure, Report, Row, Series
from paper.verdicts import judge

REPEATS = 3


def figure1(lab: Lab) -> Report:
    length = lab.scale.speed_lengths[-1]
    rows = [{**shared.tuned_row(lab, "full fine-tuning", None), "speed": 1.0}]
    for name, method in shared.sparse_methods(lab):
        rows.append({**shared.tuned_row(lab, name, method), "speed": _speed(lab, name, method, length)})
    (_, *focused), _ = twins(lab, two_phase(lab, "fine-tuned in two phases"), lab.seed)
    for row, top_k in zip(focused, (2, 1), strict=True):
        speed = layer_times(lab, GROUPS, top_k, length, REPEATS)["ratio"]
        rows.append({**row, "method": f"Focus K={GROUPS}, k={top_k}, fine-tuned", "speed": speed})
    ahead = [row for row in rows[1:-2] if any(_dominates(row, focus) for focus in rows[-2:])]
    measured = [row for row in rows if row["speed"] is not None]
    return Report(
        [
            shared.METHOD,
            Column("ppl", "perplexity"),
            shared.RELATIVE,
            shared.RETAINED,
            shared.DOMINANCE,
            Column("speed", "one layer, times as fast"),
        ],
        rows,
        lab.setting(
            steps={"centroids": lab.scale.steps, "weights": lab.scale.weight_steps},
            layer_dtype=layer_dtype(lab),
            groups=GROUPS,
            tokens_of_the_layer=length,
            repeats=REPEATS,
        ),
        [
            "The difference of a baseline is to full attention in fp32 as it is, of Focus to its twin, which was "
            "fine-tuned with full attention.",
            "Baselines are plain PyTorch, Focus takes the fastest kernel of this machine; a method's own kernels would "
            "move its point to the right. Random inputs and balanced random groups.",
        ],
        [
            judge(
                "figure1",
                not ahead if len(measured) == len(rows) else None,
                "both faster and better: " + (", ".join(row["method"] for row in ahead) or "none"),
            )
        ],
        Figure(
            "line",
            "one layer, times as fast as full attention",
            "perplexity",
            [Series(row["method"], [value_of(row, "speed")], [value_of(row)]) for row in measured],
            log_x=True,
            log_y=True,
        ),
    )


def _dominates(one: Row, focus: Row) -> bool:
    faster = value_of(one, "speed") > value_of(focus, "speed")  # False where one is not a number
    return faster and value_of(one) < value_of(focus)


@torch.no_grad()
def _speed(lab: Lab, name: str, method: Method, length: int) -> Interval | None:
    """Times as fast as full attention, one layer, measured in turn; None where the memory does not suffice."""
    setting = layer_setting(lab, GROUPS, 1)
    generator = torch.Generator().manual_seed(length)
    query, key, value = (
        torch.randn(1, heads, length, setting.head_size, generator=generator).to(
            lab.device, getattr(torch, setting.dtype)
        )
        for heads in (setting.heads, setting.key_heads, setting.key_heads)
    )
    scale, state = setting.head_size**-0.5, method.start(0, query, key)
    method.observe(Call(query, key, value, scale, state=state))

    def full() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=True
        )

    def sparse() -> torch.Tensor:
        return method.attend(Call(query, key, value, scale, state=state))

    try:
        times = in_turn({"full": full, "sparse": sparse}, REPEATS, lab.device)
    except (RuntimeError, MemoryError, InputError) as error:
        lab.log(f"one layer, {length:,} tokens, {name}: not timed, {str(error).splitlines()[0]}")
        return None
    speed = times_as_fast(asdict(times["full"]), asdict(times["sparse"]))
    lab.log(f"one layer, {length:,} tokens, {name}: {speed.value:.2f} times as fast")
    return speed
