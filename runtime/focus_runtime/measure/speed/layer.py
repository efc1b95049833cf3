"""One attention layer timed: Focus with its stages and full attention in turn, and how far Focus is from float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention import choose_backend, focus_attention
from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.dispatch import attend, fused_inside_window, rows_together
from focus_runtime.attention.flash import causal_flash, causal_sdpa
from focus_runtime.attention.masked import WindowedFocus, sliding_attention
from focus_runtime.attention.reference import Scoring
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError
from focus_runtime.failures import Advice
from focus_runtime.mask.counts import count_pairs
from focus_runtime.mask.dense import membership_extent, token_positions
from focus_runtime.mask.rule import Extent
from focus_runtime.measure.memory import failures_named, longest_that_fits, shortage_of, tokens
from focus_runtime.measure.speed.inputs import LayerSetting, described, layer_inputs
from focus_runtime.measure.timing import in_turn, peak_growth
from focus_runtime.routing.router import CentroidRouter

LAYER_LENGTHS = Advice(
    fits="leave out what is longer than {0} (--layer-lengths)",
    otherwise="leave out the longest of --layer-lengths, or close other programs",
    work="in one layer, ",
)
STAGES = ("routing", "sort", "same_group", "local", "sinks", "merge")


def full_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Full causal attention by torch's flash kernel for the device.

    Args:
        query: (B, Hq, T, D).
        key: (B, Hkv, T, D), Hq a multiple of Hkv.
        value: (B, Hkv, T, D).

    Returns:
        (B, Hq, T, D).
    """
    if query.device.type == "cpu":
        return causal_flash(query, key, value, query.shape[-1] ** -0.5)[0]
    return causal_sdpa(query, key, value, query.shape[-1] ** -0.5)


def _router(setting: LayerSetting, device: str) -> CentroidRouter:
    config = setting.routing or FocusConfig(
        num_groups=setting.num_groups, top_k=setting.top_k, window=setting.window, num_sinks=setting.num_sinks
    )
    router = CentroidRouter(setting.width, config)
    router.reset(torch.Generator().manual_seed(0))
    return router.to(device)


def layer_speed(
    setting: LayerSetting,
    length: int,
    *,
    repeats: int = 5,
    seed: int = 0,
    device: str = "cpu",
    membership: Tensor | None = None,
    same_kernel: bool = False,
) -> dict[str, Any]:
    """Time one layer whose heads are alike: full attention, Focus with its stages, and routing, in turn.

    What a composition does besides, such as text sinks, is in `composed_layer_speed`.

    Args:
        setting: the layer.
        length: T.
        repeats: timed calls of each, after one that warms up.
        seed: of inputs and random groups.
        device: "cpu" or "cuda".
        membership: (1, T) int64 in place of random groups.
        same_kernel: whether Focus's kernel takes a turn with every pair allowed too, for a ratio of pairs alone.

    Returns:
        JSON-ready: milliseconds of both with their spread, `full_over_focus` (attention alone),
        `full_over_focus_with_routing` and, where asked for, `same_kernel_full_over_focus`, shares of the stages,
        retained pairs, `limit` (the pairs of full attention, which a sliding window bounds too, over those that Focus
        keeps), peak memory growth in bytes.

    Raises:
        MemoryShortError: the memory does not suffice for this length. DeviceError: the GPU failed.
    """

    def shortage() -> InputError:
        def read(count: int) -> None:
            part = None if membership is None else membership[:, :count]
            _layer_speed(setting, count, repeats=1, seed=seed, device=device, membership=part)

        fitting = longest_that_fits(read, length, torch.device(device))
        return shortage_of(tokens(1, length), device, fitting, LAYER_LENGTHS)

    with failures_named(shortage):
        return _layer_speed(
            setting,
            length,
            repeats=repeats,
            seed=seed,
            device=device,
            membership=membership,
            same_kernel=same_kernel,
        )


@torch.no_grad()
def _layer_speed(
    setting: LayerSetting,
    length: int,
    *,
    repeats: int,
    seed: int,
    device: str,
    membership: Tensor | None,
    same_kernel: bool = False,
) -> dict[str, Any]:
    where = torch.device(device)
    query, key, value, drawn = layer_inputs(setting, length, seed=seed, device=device)
    groups = drawn if membership is None else membership.to(device)
    router = _router(setting, device)
    hidden = torch.randn(1, length, setting.width, device=device)
    sliding = setting.sliding_window if length > (setting.sliding_window or length) else None
    full = _full_call(setting, sliding, (query, key, value))
    focus = _focus_call(setting, sliding, (query, key, value), groups)
    works = {"full": full, "focus": lambda: focus(None), "routing": lambda: router.assign(hidden)}
    if same_kernel:
        one_group = replace(setting, num_groups=1, top_k=1)
        every = _focus_call(one_group, sliding, (query, key, value), torch.ones_like(groups))
        works["every_pair"] = lambda: every(None)
    times = in_turn(works, repeats, where)
    dense, sparse, routing = (times[name].median for name in ("full", "focus", "routing"))
    clock = StageClock(devices=[where])
    focus(clock)
    stages = {"routing": routing}
    stages |= {name: seconds * 1000 for name, seconds in clock.seconds.items()}
    retained = count_pairs(groups[0].cpu().numpy(), setting.rule).retained_pairs
    reached = 1 - setting.rule.unreached(length) / (length * (length + 1) // 2)  # by full attention, of causal pairs
    return {
        "tokens": length,
        **described(setting),
        "backend": _backend(setting, sliding, (query, key, value), groups),
        "seed": seed,
        "groups": "random" if membership is None else "given",
        "full_ms": asdict(times["full"]),
        "focus_ms": asdict(times["focus"]),
        "routing_ms": asdict(times["routing"]),
        "full_over_focus": dense / sparse,
        "full_over_focus_with_routing": dense / (sparse + routing),
        **({"same_kernel_full_over_focus": times["every_pair"].median / sparse} if same_kernel else {}),
        "retained_pairs": retained,
        "limit": reached / retained,
        "stages_ms": {name: stages[name] for name in STAGES if name in stages},
        "peak_bytes": {
            "full": peak_growth(full, where),
            "focus": peak_growth(lambda: focus(None), where),
        },
    }


def _full_call(
    setting: LayerSetting, sliding: int | None, tensors: tuple[Tensor, Tensor, Tensor]
) -> Callable[[], Tensor]:
    """Full attention of the layer; within its sliding window where the text is longer."""
    query, key, value = tensors
    if sliding is None:
        return lambda: full_attention(query, key, value)
    return lambda: sliding_attention(query, key, value, sliding, Scoring(setting.head_size**-0.5))


def _focus_call(
    setting: LayerSetting, sliding: int | None, tensors: tuple[Tensor, Tensor, Tensor], groups: Tensor
) -> Callable[[StageClock | None], Tensor]:
    """Focus with the choice of a backend, without the checks of the public function, which full attention lacks too."""
    query, key, value = rows_together(*tensors)
    extent = membership_extent(groups)  # a layer has it from its configuration
    rule, scoring = replace(setting.rule, sliding_window=sliding), Scoring(setting.head_size**-0.5)
    inside = WindowedFocus(groups, token_positions(groups, None), replace(rule, sliding_window=None))

    def call(clock: StageClock | None) -> Tensor:
        backend = _backend(setting, sliding, (query, key, value), groups, extent)
        if sliding is not None and backend == "sliding":
            return sliding_attention(query, key, value, sliding, scoring, focus=inside)
        more: dict[str, Any] = {"backend": backend, "return_lse": False, "clock": clock, "extent": extent}
        return attend(query, key, value, groups, rule, scoring, **more)[0]

    return call


def _backend(
    setting: LayerSetting,
    sliding: int | None,
    tensors: tuple[Tensor, Tensor, Tensor],
    groups: Tensor,
    extent: Extent | None = None,
) -> str:
    """What runs; "sliding" is the layer's own window with the Focus mask inside."""
    query, key, value = tensors
    if sliding is not None:
        return "fused" if fused_inside_window(setting.backend, query, key, value) else "sliding"
    if setting.backend != "auto":
        return setting.backend
    rule = setting.rule
    return choose_backend(
        query, key, groups, window=rule.window, num_sinks=rule.num_sinks, window_growth=rule.growth, extent=extent
    )


@torch.no_grad()
def layer_error(setting: LayerSetting, length: int, *, seed: int = 0, device: str = "cpu") -> dict[str, float]:
    """Difference of one layer's output from the float64 reference on the same (rounded) inputs.

    Args:
        setting: the layer.
        length: T.
        seed: of inputs and random groups.
        device: "cpu" or "cuda".

    Returns:
        max_abs_error, the largest absolute difference; cosine, the least similarity of a token and head.
    """
    query, key, value, groups = layer_inputs(setting, length, seed=seed, device=device)
    options: dict[str, Any] = {"window": setting.window, "num_sinks": setting.num_sinks}
    options["window_growth"] = setting.window_growth
    out = focus_attention(query, key, value, groups, backend=setting.backend, **options)
    exact = focus_attention(query.double(), key.double(), value.double(), groups, backend="reference", **options)
    assert isinstance(out, Tensor)
    assert isinstance(exact, Tensor)
    difference = (out.double() - exact).abs().max().item()
    cosine = torch.nn.functional.cosine_similarity(out.double().flatten(2), exact.flatten(2), dim=-1).min().item()
    return {"max_abs_error": difference, "cosine": cosine}
