"""One layer of a composed model timed as the model calls it: pre-hook and attention call, beside full attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.layer import focus_forward, route
from focus_runtime.composition.state import STATE, FocusLayer
from focus_runtime.errors import InputError
from focus_runtime.failures import Advice
from focus_runtime.measure.loss import layer_shares
from focus_runtime.measure.memory import failures_named, longest_that_fits, shortage_of, tokens
from focus_runtime.measure.speed.inputs import LayerSetting, layer_inputs
from focus_runtime.measure.timing import in_turn
from focus_runtime.models.devices import execution_device
from focus_runtime.models.structure import attention_modules
from focus_runtime.routing.router import CentroidRouter

MOST_READ = 1 << 26  # bytes; caches hold no more
COMPOSED_LENGTHS = Advice(
    fits="time the layer at {0} tokens or fewer", otherwise="close other programs", work="in one layer, "
)


def composed_layer_speed(
    focus: FocusModel,
    layer: int,
    vectors: Tensor,
    *,
    everywhere: Tensor | None = None,
    repeats: int = 5,
    seed: int = 0,
) -> dict[str, Any]:
    """Time one layer on random queries, keys and values: full attention, routing and Focus in turn.

    Routing is all that the pre-hook does, the search for text sinks included. Focus is all that the attention call
    does, such as heads at settings of their own in few calls and their factors. Full attention is the same two calls
    while the layer keeps its own attention. Before both, memory is read as a layer's weights are in a pass, so that the
    processor's caches hold no more of the layer than they would then.

    Args:
        focus: a composed model at the settings in question; its stage clocks are stopped.
        layer: one of its focused layers.
        vectors: (T, R) routing vectors of the tokens, which decide their groups.
        everywhere: (T,) bool, text sinks that an earlier layer found; None for none.
        repeats: timed calls of each, after one that warms up.
        seed: of the inputs.

    Returns:
        JSON-ready: `full_ms`, `focus_ms` and `routing_ms` with their spread, `retained_pairs` (mean over heads),
        `backend`, `device` and `dtype`.

    Raises:
        MemoryShortError: the memory does not suffice for this length. DeviceError: the GPU failed.
    """
    device = execution_device(attention_modules(focus.model)[layer])

    def shortage() -> InputError:
        def read(count: int) -> None:
            sinks = None if everywhere is None else everywhere[:count]
            _timed(focus, layer, vectors[:count], sinks, device, repeats=1, seed=seed)

        fitting = longest_that_fits(read, len(vectors), device)
        return shortage_of(tokens(1, len(vectors)), str(device), fitting, COMPOSED_LENGTHS)

    with failures_named(shortage):
        return _timed(focus, layer, vectors, everywhere, device, repeats=repeats, seed=seed)


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

    weights = _like_weights_of_a_layer(focus, device)
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


def _like_weights_of_a_layer(focus: FocusModel, device: torch.device) -> Tensor:
    """Memory as large as the mean of the layers' weights, at most `MOST_READ` bytes."""
    of_model = sum(weights.nbytes for weights in focus.model.parameters())
    of_layer = min(MOST_READ, of_model // len(attention_modules(focus.model)))
    return torch.ones(of_layer // 4, dtype=torch.float32, device=device)


def hidden_states(router: CentroidRouter, vectors: Tensor, *, seed: int) -> Tensor:
    """Unit-normal hidden states, but for the directions that the router reads: they have these routing vectors.

    Args:
        router: of the layer.
        vectors: (T, R) routing vectors.
        seed: of the rest.

    Returns:
        (T, E) float32 on the CPU.
    """
    projection = router.projection.detach().float().cpu()
    noise = torch.randn(len(vectors), len(projection), generator=torch.Generator().manual_seed(seed))
    missing = vectors.float().cpu() - noise @ projection
    return noise + missing @ torch.linalg.pinv(projection)
