"""One attention layer timed: Focus with its stages and full attention in turn, alone and as a model calls it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention import choose_backend, focus_attention
from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.dispatch import attend, fused_inside_window, rows_together
from focus_runtime.attention.flash import causal_flash, causal_sdpa
from focus_runtime.attention.masked import WindowedFocus, sliding_attention
from focus_runtime.attention.reference import Scoring
from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.layer import focus_forward, route
from focus_runtime.composition.state import STATE, FocusLayer
from focus_runtime.config import CONSTANT, FocusConfig
from focus_runtime.errors import InputError
from focus_runtime.failures import Advice
from focus_runtime.mask.allowed_pairs import membership_extent, token_positions
from focus_runtime.mask.counts import count_pairs
from focus_runtime.mask.rule import Extent, PairRule
from focus_runtime.measure.loss import layer_shares
from focus_runtime.measure.memory import failures_named, longest_that_fits, shortage_of, tokens
from focus_runtime.measure.timing import in_turn, peak_growth
from focus_runtime.models.devices import dtype_name, execution_device
from focus_runtime.models.structure import attention_modules, sliding_window_of
from focus_runtime.routing.router import CentroidRouter


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSetting:
    """One attention layer with unit-normal inputs."""

    heads: int = 12
    key_heads: int = 12
    head_size: int = 64
    num_groups: int = 8
    top_k: int = 1
    window: int = 128
    num_sinks: int = 0
    dtype: str = "float32"
    backend: str = "auto"
    hidden_size: int | None = None  # width the router reads. None: heads * head_size
    routing: FocusConfig | None = None  # of the router that is timed. None: from the other fields
    sliding_window: int | None = None  # tokens that the layer's own attention reaches, under Focus and without
    window_growth: tuple[int, int] | None = None

    @classmethod
    def of_model(cls, model: Any, config: FocusConfig) -> LayerSetting:
        """A layer of the model's own shape and type, with a sliding window only if all its layers have one."""
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
            window_growth=config.window_growth,
        )

    @property
    def rule(self) -> PairRule:
        """Which pairs Focus allows."""
        return PairRule(self.window, self.num_sinks, self.sliding_window, self.window_growth or CONSTANT)

    @property
    def width(self) -> int:
        """d, of the hidden states."""
        return self.hidden_size or self.heads * self.head_size


def balanced_membership(length: int, num_groups: int, top_k: int, generator: torch.Generator) -> Tensor:
    """(1, T) int64 bit sets: for k = 1 equally many tokens in each group, else k different groups drawn evenly."""
    if top_k == 1:
        group = torch.randperm(length, generator=generator) % num_groups
        return torch.bitwise_left_shift(torch.ones_like(group), group)[None]
    drawn = torch.rand(length, num_groups, generator=generator).argsort(-1)[:, :top_k]
    return torch.bitwise_left_shift(torch.ones_like(drawn), drawn).sum(-1)[None]


def tokens_like(membership: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """(length,) int64 positions of a real text's tokens that stand for a text of another length, in random order.

    Every kind of membership has as large a share as in the real text, up to one token; `membership` is (S, T) int64,
    the real text's under each of several top-k.
    """
    kinds = membership.unique(dim=1, return_inverse=True)[1]
    even = torch.arange(length) * len(kinds) // length
    return kinds.argsort(stable=True)[even][torch.randperm(length, generator=generator)]


def layer_inputs(
    setting: LayerSetting, length: int, *, seed: int, device: str = "cpu"
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit-normal query, key and value as models lay them out, (1, T, H, D) transposed, and (1, T) membership."""
    generator = torch.Generator().manual_seed(seed)
    heads = (setting.heads, setting.key_heads, setting.key_heads)
    dtype = getattr(torch, setting.dtype)
    q, k, v = (
        torch.randn(1, length, h, setting.head_size, generator=generator).to(device, dtype).transpose(1, 2)
        for h in heads
    )
    return q, k, v, balanced_membership(length, setting.num_groups, setting.top_k, generator).to(device)


MOST_READ = 1 << 26  # bytes; caches hold no more
COMPOSED_LENGTHS = Advice(
    fits="time the layer at {0} tokens or fewer", otherwise="close other programs", work="in one layer, "
)
LAYER_LENGTHS = Advice(
    fits="leave out what is longer than {0} (--layer-lengths)",
    otherwise="leave out the longest of --layer-lengths, or close other programs",
    work="in one layer, ",
)
STAGES = ("routing", "sort", "same_group", "local", "sinks", "merge")


def _length_named(
    length: int, device: torch.device, advice: Advice, read: Callable[[int], Any]
) -> AbstractContextManager[None]:
    """Name a length that fits where the memory does not suffice for this one; `read` times so many tokens once."""

    def shortage() -> InputError:
        return shortage_of(tokens(1, length), str(device), longest_that_fits(read, length, device), advice)

    return failures_named(shortage)


def composed_layer_speed(
    focus: FocusModel, layer: int, vectors: Tensor, *, everywhere: Tensor | None = None, repeats: int = 5, seed: int = 0
) -> dict[str, Any]:
    """Time one layer on random queries, keys and values: full attention, routing and Focus in turn.

    Routing is all that the pre-hook does, the search for text sinks included. Focus is all that the attention call
    does, such as heads at settings of their own in few calls and their factors. Full attention is the same two calls
    while the layer keeps its own attention. Before both, memory is read as a layer's weights are in a pass, so that the
    processor's caches hold no more of the layer than they would then.

    Args:
        focus: a composed model at the settings in question; its stage clocks are stopped.
        vectors: (T, R) routing vectors of the tokens, which decide their groups.
        everywhere: (T,) bool, text sinks that an earlier layer found.
        repeats: timed calls of each, after one that warms up.
    """
    device = execution_device(attention_modules(focus.model)[layer])

    def timed(count: int, repeats: int = 1) -> dict[str, Any]:
        sinks = None if everywhere is None else everywhere[:count]
        return _timed(focus, layer, vectors[:count], sinks, device, repeats=repeats, seed=seed)

    with _length_named(len(vectors), device, COMPOSED_LENGTHS, timed):
        return timed(len(vectors), repeats)


@torch.no_grad()
def _timed(
    focus: FocusModel,
    layer: int,
    vectors: Tensor,
    everywhere: Tensor | None,
    device: torch.device,
    *,
    repeats: int,
    seed: int,
) -> dict[str, Any]:
    module = attention_modules(focus.model)[layer]
    state: FocusLayer = module.__dict__[STATE]
    assert state.router is not None, "only focused layers are timed"
    setting = LayerSetting.of_model(focus.model, focus.config)
    query, key, value, _ = layer_inputs(setting, len(vectors), seed=seed, device=str(device))
    hidden = hidden_states(state.router, vectors, seed=seed).to(device, query.dtype)[None]
    focus.found_sinks.by_layer = {} if everywhere is None else {layer - 1: everywhere[None].to(device)}
    focus.reset_seconds(timed=False)

    def full() -> None:
        with focus.measured_full_attention():
            route(module, (hidden,), {})
            focus_forward(module, query, key, value, None)

    of_layer = sum(weights.nbytes for weights in focus.model.parameters()) // len(attention_modules(focus.model))
    weights = torch.ones(min(MOST_READ, of_layer) // 4, dtype=torch.float32, device=device)
    works: dict[str, Callable[[], Any]] = {
        "read": weights.sum,
        "full": full,
        "read again": weights.sum,
        "routing": lambda: route(module, (hidden,), {}),
        "focus": lambda: focus_forward(module, query, key, value, None),  # of the groups just decided
    }
    times = in_turn(works, repeats, device)
    return {
        **{f"{name}_ms": asdict(times[name]) for name in ("full", "focus", "routing")},
        "retained_pairs": layer_shares(focus.head_masks()[layer])[0],
        "backend": ", ".join(sorted(focus.backends()[layer].split(", "))),
        "device": str(device),
        "dtype": setting.dtype,
    }


def hidden_states(router: CentroidRouter, vectors: Tensor, *, seed: int) -> Tensor:
    """(T, E) float32 unit-normal hidden states, but in the directions that the router reads: there (T, R) `vectors`."""
    projection = router.projection.detach().float().cpu()
    noise = torch.randn(len(vectors), len(projection), generator=torch.Generator().manual_seed(seed))
    missing = vectors.float().cpu() - noise @ projection
    return noise + missing @ torch.linalg.pinv(projection)


def full_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Full causal attention by torch's flash kernel for the device."""
    if query.device.type == "cpu":
        return causal_flash(query, key, value, query.shape[-1] ** -0.5)[0]
    return causal_sdpa(query, key, value, query.shape[-1] ** -0.5)


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
        membership: (1, T) int64 in place of random groups.
        same_kernel: whether Focus's kernel is timed with every pair allowed too, for a ratio of pairs alone.

    In the row, `limit` is the pairs of full attention, which a sliding window bounds too, over those that Focus keeps.
    """

    def timed(count: int, **how: Any) -> dict[str, Any]:
        groups = None if membership is None else membership[:, :count]
        return _layer_speed(setting, count, groups, seed=seed, device=device, **how)

    with _length_named(length, torch.device(device), LAYER_LENGTHS, timed):
        return timed(length, repeats=repeats, same_kernel=same_kernel)


@torch.no_grad()
def _layer_speed(
    setting: LayerSetting,
    length: int,
    membership: Tensor | None,
    *,
    seed: int,
    device: str,
    repeats: int = 1,
    same_kernel: bool = False,
) -> dict[str, Any]:
    where = torch.device(device)
    query, key, value, drawn = layer_inputs(setting, length, seed=seed, device=device)
    groups = drawn if membership is None else membership.to(device)
    config = setting.routing or FocusConfig(
        num_groups=setting.num_groups, top_k=setting.top_k, window=setting.window, num_sinks=setting.num_sinks
    )
    router = CentroidRouter(setting.width, config)
    router.reset(torch.Generator().manual_seed(0))
    router.to(device)
    hidden = torch.randn(1, length, setting.width, device=device)
    sliding = setting.sliding_window if length > (setting.sliding_window or length) else None

    def full() -> Tensor:
        if sliding is None:
            return full_attention(query, key, value)
        return sliding_attention(query, key, value, sliding, Scoring(setting.head_size**-0.5))

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
    stages = {"routing": routing} | {name: seconds * 1000 for name, seconds in clock.seconds.items()}
    retained = count_pairs(groups[0].cpu().numpy(), setting.rule).retained_pairs
    reached = 1 - setting.rule.unreached(length) / (length * (length + 1) // 2)  # by full attention, of causal pairs
    return {
        "tokens": length,
        **{name: value for name, value in asdict(setting).items() if value is not None},
        "backend": _backend(setting, sliding, (query, key, value), groups),
        "seed": seed,
        "groups": "random" if membership is None else "given",
        **{f"{name}_ms": asdict(times[name]) for name in ("full", "focus", "routing")},
        "full_over_focus": dense / sparse,
        "full_over_focus_with_routing": dense / (sparse + routing),
        **({"same_kernel_full_over_focus": times["every_pair"].median / sparse} if same_kernel else {}),
        "retained_pairs": retained,
        "limit": reached / retained,
        "stages_ms": {name: stages[name] for name in STAGES if name in stages},
        "peak_bytes": {"full": peak_growth(full, where), "focus": peak_growth(lambda: focus(None), where)},
    }


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
    """Largest difference of one layer's output from the float64 reference on the same (rounded) inputs, and the least
    cosine similarity of a token and head."""
    query, key, value, groups = layer_inputs(setting, length, seed=seed, device=device)
    options: dict[str, Any] = {name: getattr(setting, name) for name in ("window", "num_sinks", "window_growth")}
    out = focus_attention(query, key, value, groups, backend=setting.backend, **options)
    exact = focus_attention(query.double(), key.double(), value.double(), groups, backend="reference", **options)
    assert isinstance(out, Tensor)
    assert isinstance(exact, Tensor)
    difference = (out.double() - exact).abs().max().item()
    cosine = torch.nn.functional.cosine_similarity(out.double().flatten(2), exact.flatten(2), dim=-1).min().item()
    return {"max_abs_error": difference, "cosine": cosine}
