"""Timing protocols: one attention layer, and a whole model's prefill and decode, Focus and full attention.

Full attention and Focus take turns within one run, so that a drift of the machine's speed hits both; every number is a
median with its extremes and its count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import StaticCache

from focus_runtime.attention import choose_backend, focus_attention
from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.cuda.packing import membership_extent
from focus_runtime.attention.dispatch import attend, fused_inside_window, rows_together
from focus_runtime.attention.flash import causal_flash, causal_sdpa
from focus_runtime.attention.scoring import Scoring
from focus_runtime.attention.sliding import WindowedFocus, sliding_attention
from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.heads import by_key_head, neighbours, query_heads
from focus_runtime.composition.state import FULL
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError
from focus_runtime.failures import Advice
from focus_runtime.mask.blocks import count_pairs
from focus_runtime.mask.dense import token_positions
from focus_runtime.mask.extent import Extent
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.loss import final_hidden
from focus_runtime.measure.memory import failures_named, longest_that_fits, shortage_of, tokens
from focus_runtime.measure.timing import MODES, Spread, attending, in_turn, milliseconds, peak_bytes, reset_peak_memory
from focus_runtime.models.precision import dtype_name
from focus_runtime.models.structure import attention_modules, sliding_window_of
from focus_runtime.routing.router import CentroidRouter

LAYER_LENGTHS = Advice(
    fits="leave out what is longer than {0} (--layer-lengths)",
    otherwise="leave out the longest of --layer-lengths, or close other programs",
    work="in one layer, ",
)
STAGES = ("routing", "sort", "same_group", "local", "sinks", "merge")


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSetting:
    """One attention layer with unit-normal inputs.

    Attributes:
        heads, key_heads, head_size: of the layer.
        hidden_size: width the router reads; heads * head_size when None.
        num_groups, top_k, window, num_sinks: of Focus.
        dtype: "float32" or "bfloat16".
        backend: of `focus_attention`.
        routing: config of the router that is timed, with its own assignment and width; from the other fields when None.
        sliding_window: tokens that the layer's own attention reaches, under Focus and without; None for all.
    """

    heads: int = 12
    key_heads: int = 12
    head_size: int = 64
    num_groups: int = 8
    top_k: int = 1
    window: int = 128
    num_sinks: int = 0
    dtype: str = "float32"
    backend: str = "auto"
    hidden_size: int | None = None
    routing: FocusConfig | None = None
    sliding_window: int | None = None

    @classmethod
    def of_model(cls, model: Any, config: FocusConfig) -> LayerSetting:
        """A layer of the model's own shape and type; its router is timed in the given configuration.

        Its sliding window is None unless all layers have one: Focus runs on the others where there are any.

        Args:
            model: a Hugging Face causal language model.
            config: of Focus.
        """
        shape = model.config.get_text_config()
        windows = [sliding_window_of(module) for module in attention_modules(model).values()]
        own = [window for window in windows if window is not None]
        return cls(
            heads=shape.num_attention_heads,
            key_heads=getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads,
            head_size=getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads,
            num_groups=config.num_groups,
            top_k=config.top_k,
            window=config.window,
            num_sinks=config.num_sinks,
            dtype=dtype_name(model),
            hidden_size=shape.hidden_size,
            routing=config,
            sliding_window=max(own) if len(own) == len(windows) else None,
        )

    @property
    def rule(self) -> PairRule:
        """Which pairs Focus allows."""
        return PairRule(self.window, self.num_sinks, self.sliding_window)

    @property
    def width(self) -> int:
        """d, of the hidden states."""
        return self.hidden_size or self.heads * self.head_size


@dataclass(frozen=True, slots=True)
class LayerPart:
    """Some heads of a layer that execute one setting.

    Attributes:
        heads: key-value heads, ascending; the query heads that share them go with them.
        window: w.
        membership: (1, T) int64 on the layer's device; None under full attention.
    """

    heads: tuple[int, ...]
    window: int
    membership: Tensor | None


def described(setting: LayerSetting) -> dict[str, Any]:
    """The setting's values that are not None."""
    return {name: value for name, value in asdict(setting).items() if value is not None}


def balanced_membership(length: int, num_groups: int, top_k: int, generator: torch.Generator) -> Tensor:
    """Random groups: for k = 1 equally many tokens in each, else k different groups drawn evenly.

    Args:
        length: T.
        num_groups: K.
        top_k: k.
        generator: on the CPU.

    Returns:
        (1, T) int64 bit sets.
    """
    if top_k == 1:
        group = torch.randperm(length, generator=generator) % num_groups
        return torch.bitwise_left_shift(torch.ones_like(group), group)[None]
    drawn = torch.rand(length, num_groups, generator=generator).argsort(-1)[:, :top_k]
    return torch.bitwise_left_shift(torch.ones_like(drawn), drawn).sum(-1)[None]


def membership_like(membership: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """Groups for a text of another length in the shares of a real one, in random order.

    Args:
        membership: (T,) int64 of the real text.
        length: tokens of the other text.
        generator: of the order, on the CPU.

    Returns:
        (1, length) int64: of every kind of membership as large a share as in the real text, up to one token.
    """
    even = torch.arange(length) * membership.shape[0] // length
    return membership.sort().values[even][torch.randperm(length, generator=generator)][None]


def layer_inputs(
    setting: LayerSetting, length: int, *, seed: int, device: str = "cpu"
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit-normal query, key and value as models lay them out, (1, T, H, D) transposed, and random membership.

    Args:
        setting: the layer.
        length: T.
        seed: of all four.
        device: of all four.

    Returns:
        (1, Hq, T, D), (1, Hkv, T, D), (1, Hkv, T, D) in the layer's type, and (1, T) int64 bit sets.
    """
    generator = torch.Generator().manual_seed(seed)
    heads = (setting.heads, setting.key_heads, setting.key_heads)
    dtype = getattr(torch, setting.dtype)
    q, k, v = (
        torch.randn(1, length, h, setting.head_size, generator=generator).to(device, dtype).transpose(1, 2)
        for h in heads
    )
    return q, k, v, balanced_membership(length, setting.num_groups, setting.top_k, generator).to(device)


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
    parts: Sequence[LayerPart] = (),
) -> dict[str, Any]:
    """Time one layer: full attention, Focus with its stages, and routing, in turn.

    Args:
        setting: the layer.
        length: T.
        repeats: timed calls of each, after one that warms up.
        seed: of inputs and random groups.
        device: "cpu" or "cuda".
        membership: (1, T) int64 in place of random groups.
        parts: all heads of the layer with what they execute, where they differ.

    Returns:
        JSON-ready: milliseconds of both with their spread, `full_over_focus` (attention alone) and
        `full_over_focus_with_routing`, shares of the stages, retained pairs, peak memory growth in bytes.

    Raises:
        MemoryShortError: the memory does not suffice for this length. DeviceError: the GPU failed.
    """

    def shortage() -> InputError:
        def read(count: int) -> None:
            part = None if membership is None else membership[:, :count]
            own = tuple(
                each if each.membership is None else replace(each, membership=each.membership[:, :count])
                for each in parts
            )
            _layer_speed(setting, count, repeats=1, seed=seed, device=device, membership=part, parts=own)

        fitting = longest_that_fits(read, length, torch.device(device))
        return shortage_of(tokens(1, length), device, fitting, LAYER_LENGTHS)

    with failures_named(shortage):
        return _layer_speed(
            setting, length, repeats=repeats, seed=seed, device=device, membership=membership, parts=parts
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
    parts: Sequence[LayerPart],
) -> dict[str, Any]:
    where = torch.device(device)
    query, key, value, drawn = layer_inputs(setting, length, seed=seed, device=device)
    groups = drawn if membership is None else membership.to(device)
    router = _router(setting, device)
    hidden = torch.randn(1, length, setting.width, device=device)
    sliding = setting.sliding_window if length > (setting.sliding_window or length) else None
    full = _full_call(setting, sliding, (query, key, value))
    focus = _focus_call(setting, sliding, (query, key, value), groups)
    if parts:
        focus = _parts_call(setting, sliding, (query, key, value), parts)
    works = {"full": full, "focus": lambda: focus(None), "routing": lambda: router.assign(hidden)}
    times = in_turn(works, repeats, where)
    dense, sparse, routing = (times[name].median for name in works)
    clock = StageClock(devices=[where])
    focus(clock)
    stages = {"routing": routing}
    stages |= {name: seconds * 1000 for name, seconds in clock.seconds.items()}
    retained = _retained(setting, parts or (LayerPart((0,), setting.window, groups),), length)
    return {
        "tokens": length,
        **described(setting),
        "backend": _backend_names(setting, sliding, (query, key, value), groups, parts),
        "seed": seed,
        "groups": "random" if membership is None and not parts else "given",
        "full_ms": asdict(times["full"]),
        "focus_ms": asdict(times["focus"]),
        "routing_ms": asdict(times["routing"]),
        "full_over_focus": dense / sparse,
        "full_over_focus_with_routing": dense / (sparse + routing),
        "retained_pairs": retained,
        "limit": 1 / retained,
        "stages_ms": {name: stages[name] for name in STAGES if name in stages},
        "peak_bytes": {
            "full": _growth(full, where),
            "focus": _growth(lambda: focus(None), where),
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
    """Focus as a layer calls it: with the choice of a backend, without the checks of the public function, which full
    attention lacks too."""
    query, key, value = rows_together(*tensors)
    extent = membership_extent(groups)  # a layer has it from its configuration
    rule, scoring = PairRule(setting.window, setting.num_sinks, sliding), Scoring(setting.head_size**-0.5)
    inside = WindowedFocus(groups, token_positions(groups, None), PairRule(setting.window, setting.num_sinks))

    def call(clock: StageClock | None) -> Tensor:
        backend = _backend(setting, sliding, (query, key, value), groups, extent)
        if sliding is not None and backend == "sliding":
            return sliding_attention(query, key, value, sliding, scoring, focus=inside)
        more: dict[str, Any] = {"backend": backend, "return_lse": False, "clock": clock, "extent": extent}
        return attend(query, key, value, groups, rule, scoring, **more)[0]

    return call


def _of_heads(
    setting: LayerSetting, tensors: tuple[Tensor, Tensor, Tensor], part: LayerPart
) -> tuple[LayerSetting, tuple[Tensor, Tensor, Tensor]]:
    """Some heads of a layer as a layer of their own."""
    query, key, value = tensors
    heads = next(neighbours(part.heads, copies=True))
    own = (query_heads(query, heads, setting.key_heads), key[:, heads], value[:, heads])
    return replace(setting, heads=own[0].shape[1], key_heads=own[1].shape[1], window=part.window), own


def _parts_call(
    setting: LayerSetting, sliding: int | None, tensors: tuple[Tensor, Tensor, Tensor], parts: Sequence[LayerPart]
) -> Callable[[StageClock | None], Tensor]:
    """Heads of equal settings together, one group of heads after the other, as a layer calls them."""
    calls: list[Callable[[StageClock | None], Tensor]] = []
    for part in parts:
        own, apart = _of_heads(setting, tensors, part)
        if part.membership is None:
            full = _full_call(own, sliding, apart)
            calls.append(lambda clock, full=full: full())  # type: ignore[misc]
        else:
            calls.append(_focus_call(own, sliding, apart, part.membership))

    def call(clock: StageClock | None) -> Tensor:
        out = torch.empty_like(tensors[0])
        for part, work in zip(parts, calls, strict=True):
            heads = next(neighbours(part.heads, copies=True))
            by_key_head(out, 1, setting.key_heads)[:, heads] = by_key_head(work(clock), 1, len(part.heads))
        return out

    return call


def _retained(setting: LayerSetting, parts: Sequence[LayerPart], length: int) -> float:
    """Allowed pairs over causal pairs, mean over heads."""
    kept, heads = 0.0, sum(len(part.heads) for part in parts)
    for part in parts:
        rule = PairRule(part.window, setting.num_sinks, setting.sliding_window)
        groups = torch.ones(1, length, dtype=torch.int64) if part.membership is None else part.membership
        kept += len(part.heads) / heads * count_pairs(groups[0].cpu().numpy(), rule).retained_pairs
    return kept


def _backend_names(
    setting: LayerSetting,
    sliding: int | None,
    tensors: tuple[Tensor, Tensor, Tensor],
    groups: Tensor,
    parts: Sequence[LayerPart],
) -> str:
    """What runs, each once in alphabetical order."""
    if not parts:
        return _backend(setting, sliding, tensors, groups)
    names = set()
    for part in parts:
        own, apart = _of_heads(setting, tensors, part)
        names.add(FULL if part.membership is None else _backend(own, sliding, apart, part.membership))
    return ", ".join(sorted(names))


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
    return choose_backend(query, key, groups, window=setting.window, num_sinks=setting.num_sinks, extent=extent)


def _growth(work: Callable[[], Any], device: torch.device) -> int | None:
    """Bytes the peak rises while something runs; None where the system cannot start the peak over."""
    if not reset_peak_memory(device):
        return None
    before = peak_bytes(device)
    work()
    return max(0, peak_bytes(device) - before)


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
    out = focus_attention(query, key, value, groups, backend=setting.backend, **options)
    exact = focus_attention(query.double(), key.double(), value.double(), groups, backend="reference", **options)
    assert isinstance(out, Tensor)
    assert isinstance(exact, Tensor)
    difference = (out.double() - exact).abs().max().item()
    cosine = torch.nn.functional.cosine_similarity(out.double().flatten(2), exact.flatten(2), dim=-1).min().item()
    return {"max_abs_error": difference, "cosine": cosine}


@torch.no_grad()
def prefill_speed(focus: FocusModel, ids: Tensor, *, repeats: int = 3) -> dict[str, Any]:
    """Time the whole model on one text, to the last hidden state: full attention (torch's) and Focus in turn.

    Args:
        focus: a composed model.
        ids: (1, T) on the model's device.
        repeats: timed passes of each, after one that warms up.

    Returns:
        JSON-ready: milliseconds and tokens per second of both, their ratio for the whole model and for attention with
        routing, milliseconds of every stage, peak memory growth.
    """
    model, device = focus.model, ids.device
    times: dict[str, list[float]] = {"full": [], "focus": []}
    stages: dict[str, dict[str, list[float]]] = {"full": {}, "focus": {}}
    for repeat in range(repeats + 1):
        for mode in MODES:
            focus.reset_seconds()
            with attending(focus, mode):
                elapsed = milliseconds(lambda: final_hidden(model, ids), device)
            if repeat == 0:  # warms up
                continue
            times[mode].append(elapsed)
            for name, seconds in focus.seconds.seconds.items():
                stages[mode].setdefault(name, []).append(seconds * 1000)
    median = {mode: statistics.median(values) for mode, values in times.items()}
    per_stage = {m: {n: statistics.median(v) for n, v in by_name.items()} for m, by_name in stages.items()}
    attention = per_stage["focus"]["attention"] + per_stage["focus"].get("routing", 0.0)
    with focus.measured_full_attention():
        full_growth = _growth(lambda: final_hidden(model, ids), device)
    return {
        "tokens": ids.shape[1],
        "full_ms": asdict(Spread.of(times["full"])),
        "focus_ms": asdict(Spread.of(times["focus"])),
        "full_tokens_per_second": ids.shape[1] / median["full"] * 1000,
        "focus_tokens_per_second": ids.shape[1] / median["focus"] * 1000,
        "full_over_focus": median["full"] / median["focus"],
        "attention_full_over_focus": per_stage["full"]["attention"] / attention,
        "stages_ms": per_stage,
        "backends": focus.backend_names.split(", "),
        "peak_bytes": {"full": full_growth, "focus": _growth(lambda: final_hidden(model, ids), device)},
    }


@torch.no_grad()
def decode_speed(focus: FocusModel, ids: Tensor, *, steps: int = 8) -> dict[str, Any]:
    """Time single decode steps after a text, full attention and Focus in turn, each with a static cache of its own.

    A static cache, because a growing one copies every past key and value at each step, with and without Focus.

    Args:
        focus: a composed model.
        ids: (1, T) of the text, on the model's device.
        steps: timed steps of each, after one that warms up.

    Returns:
        JSON-ready: milliseconds of a step and tokens per second of both, their ratio for the whole model and for
        attention with routing, milliseconds of the latter.
    """
    model, past = focus.model, ids.shape[1]
    caches, last = {}, {}
    for mode in MODES:
        with attending(focus, mode):
            caches[mode] = StaticCache(config=model.config, max_cache_len=past + steps + 2)
            out = model(input_ids=ids, past_key_values=caches[mode], use_cache=True, logits_to_keep=1)
            last[mode] = out.logits[:, -1:].argmax(-1)
    times: dict[str, list[float]] = {"full": [], "focus": []}
    attention: dict[str, list[float]] = {"full": [], "focus": []}
    for step in range(steps + 1):
        for mode in MODES:
            focus.reset_seconds()

            def one(mode: str = mode) -> None:
                out = model(input_ids=last[mode], past_key_values=caches[mode], use_cache=True)
                last[mode] = out.logits[:, -1:].argmax(-1)

            with attending(focus, mode):
                elapsed = milliseconds(one, ids.device)
            if step > 0:
                times[mode].append(elapsed)
                attention[mode].append((focus.seconds.attention + focus.seconds.routing) * 1000)
    median = {mode: statistics.median(values) for mode, values in times.items()}
    return {
        "past_tokens": past,
        "steps": steps,
        "full_ms": asdict(Spread.of(times["full"])),
        "focus_ms": asdict(Spread.of(times["focus"])),
        "full_tokens_per_second": 1000 / median["full"],
        "focus_tokens_per_second": 1000 / median["focus"],
        "full_over_focus": median["full"] / median["focus"],
        "attention_ms": {mode: asdict(Spread.of(values)) for mode, values in attention.items()},
        "attention_full_over_focus": statistics.median(attention["full"]) / statistics.median(attention["focus"]),
    }
