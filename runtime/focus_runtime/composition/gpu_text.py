"""Groups of a text's tokens on a GPU in one kernel: the router's, for every top-k of the heads, and text sinks.

A GPU waits for the host in short texts, and what is decided by several kernels takes the host longer.

Shape suffixes: B batch, T new tokens, E model width, S distinct top-k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from focus_runtime.composition.heads import MOST_SETS
from focus_runtime.composition.state import FocusLayer
from focus_runtime.gpu.usable import tried
from focus_runtime.routing.router import ROUTING, Assignment

if TYPE_CHECKING:
    from focus_runtime.routing.on_gpu import TextSinks

MOST_TOKENS = 1 << 17  # for which groups by every top-k are decided before attention asks: they are kept until the end


def decided_on_gpu(layer: FocusLayer, hidden: Tensor, padding: Tensor | None) -> Assignment | None:
    """What the router decides for new tokens, text sinks in all groups; None where the kernel does not take the call.

    Args:
        layer: of the call, its history found.
        hidden: (B, T, E), its input.
        padding: (B, T) bool, or None where all tokens are real.
    """
    owner, router, history, config = layer.owner, layer.router, layer.current_pass.history, layer.owner.config
    assert router is not None, "only layers with a router are routed"
    if (
        padding is not None
        or config.assignment != "causal"
        or owner.edits.get(layer.index) is not None
        or not router.routes_on_gpu(hidden)
    ):
        return None
    seen = 0 if history is None else history.seen
    looks, sinks = config.text_sinks is not None and layer.index >= config.text_sinks_from, None
    if config.text_sinks is not None and history is not None:
        if seen == 0:
            history.first_input = hidden[:, 0].clone()
        elif history.first_input is None or history.first_input.dtype != hidden.dtype:
            return None
    if looks:
        sinks = _sinks(layer, hidden, seen)
    top_ks = _asked(layer, hidden)
    from focus_runtime.routing.on_gpu import route_on_gpu  # needs Triton

    weights_EK, potential, asked = router.scoring_weights(), router.potential, top_ks or (config.top_k,)
    with_usual = asked if config.top_k in asked else (*asked, config.top_k)
    result = tried(ROUTING, hidden, lambda: route_on_gpu(hidden, weights_EK, potential, with_usual, sinks))
    if result is None:
        return None
    probabilities_BTK, sets_SBT, found_BT = result
    if config.text_sinks is not None:
        if found_BT is None:
            owner.found_sinks.by_layer.pop(layer.index, None)  # of an earlier pass
        else:
            owner.found_sinks.by_layer[layer.index] = found_BT
    return Assignment(
        probabilities_BTK,
        sets_SBT[with_usual.index(config.top_k)],
        potential,
        uniform=found_BT is None,
        everywhere=found_BT,
        beyond=found_BT is not None,
        by_top_k=(asked, sets_SBT if with_usual is asked else sets_SBT[:-1]) if top_ks else None,
    )


def _sinks(layer: FocusLayer, hidden: Tensor, seen: int) -> TextSinks:
    from focus_runtime.routing.on_gpu import TextSinks

    history, config, shape = layer.current_pass.history, layer.owner.config, hidden.shape[:2]
    assert config.text_sinks is not None, "the layer looks"
    known_BT = layer.owner.found_sinks.known_before(layer.index, shape, hidden.device)
    if history is None or history.first_input is None:
        first_BE, padding_B = hidden[:, 0].contiguous(), None
    else:
        first_BE, padding_B = history.first_input.to(hidden.device).contiguous(), history.first_real if seen else None
    known_BT = None if known_BT is None else known_BT.contiguous()
    return TextSinks(first_BE, known_BT, config.text_sinks, config.num_sinks - seen, padding_B)


def _asked(layer: FocusLayer, hidden: Tensor) -> tuple[int, ...]:
    """Distinct top-k that attention will ask for; none where that is not known or too much."""
    heads = layer.known_heads
    if heads is None or hidden.shape[0] * hidden.shape[1] > MOST_TOKENS or len(heads.top_ks) >= MOST_SETS:
        return ()
    return heads.top_ks
