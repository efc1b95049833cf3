"""Which groups the new tokens of a layer belong to: by its router, with text sinks and changes made by hand.

Models give much attention to few tokens of enormous hidden states. The first token is always one, and `num_sinks`
keeps it; others stand in the middle of a text. Where the setting `text_sinks` is given, a token whose input of a layer
has at least that cosine similarity with the first token's belongs to all groups of that layer and of every later one.
Only earlier tokens decide, so a text continued from a cache has the same sinks.

Shape suffixes: B batch, T new tokens, E model width, K groups, S distinct top-k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focus_runtime.composition.documents import Documents
from focus_runtime.composition.heads import MOST_SETS
from focus_runtime.composition.state import FocusLayer
from focus_runtime.gpu import tried
from focus_runtime.routing.router import ROUTING, Assignment, CentroidRouter

if TYPE_CHECKING:
    from focus_runtime.routing.on_gpu import TextSinks

MOST_TOKENS = 1 << 17  # for which groups by every top-k are decided before attention asks: they are kept until the end


def decide_groups(layer: FocusLayer, hidden: Tensor, padding: Tensor | None) -> Assignment:
    """Groups of a layer's new tokens by its input (B, T, E); `padding`, (B, all tokens), is True for real ones."""
    owner, router, documents = layer.owner, layer.router, layer.current_pass.documents
    assert router is not None, "only layers with a router are routed"
    with owner.seconds("routing"):
        assignment = _on_gpu(layer, router, hidden) if padding is None and documents is None else None
        if assignment is None:
            if documents is not None and owner.config.assignment == "sinkhorn":
                assignment = _by_document(router, hidden, documents)
            else:
                assignment = router.assign(hidden, padding=padding, assignment=owner.config.assignment)
            if owner.config.text_sinks is not None:
                assignment = _with_text_sinks(layer, assignment, hidden, padding)
        for mode in owner.modes:
            assignment = mode.edited(layer, assignment)
    return assignment


def _by_document(router: CentroidRouter, hidden: Tensor, documents: Documents) -> Assignment:
    """Groups that Sinkhorn's sums over each document decide; padding has none."""
    probabilities = torch.zeros(*hidden.shape[:2], router.config.num_groups, device=hidden.device)
    membership_BT = torch.zeros(hidden.shape[:2], dtype=torch.int64, device=hidden.device)
    for span in documents.spans:
        tokens = slice(span.start, span.stop)
        own = router.assign(hidden[span.rows, tokens], assignment="sinkhorn")
        probabilities[span.rows, tokens], membership_BT[span.rows, tokens] = own.probabilities, own.membership
    return Assignment(probabilities, membership_BT, router.potential)


def _with_text_sinks(
    layer: FocusLayer, assignment: Assignment, hidden_BTE: Tensor, padding: Tensor | None
) -> Assignment:
    """The same groups, sinks in all of them; with packed documents, the first token of each document counts."""
    current, config, found = layer.current_pass, layer.owner.config, layer.owner.found_sinks
    new, device = hidden_BTE.shape[1], hidden_BTE.device
    padding_BT = None if padding is None else padding[:, current.before : current.before + new]
    if current.documents is None:
        first_BE, position_BT = _first_input(layer, hidden_BTE, padding_BT)
        first_BTE = first_BE[:, None]
    else:
        start_BT = current.documents.starts()
        first_BTE = hidden_BTE.detach().take_along_dim(start_BT[..., None], dim=1)
        position_BT = torch.arange(new, device=device) - start_BT
    movable_BT = (position_BT >= config.num_sinks).expand(hidden_BTE.shape[:2])
    known_BT = found.before(layer.index, movable_BT.shape, device)
    if known_BT is None:
        known_BT = torch.zeros_like(movable_BT)
    if config.text_sinks is not None and layer.index >= config.text_sinks_from:
        alike_BT = torch.nn.functional.cosine_similarity(hidden_BTE.float(), first_BTE.float(), dim=-1)
        known_BT = known_BT | ((alike_BT >= config.text_sinks) & movable_BT)
        if padding_BT is not None:
            known_BT = known_BT & padding_BT
    found.by_layer[layer.index] = known_BT
    return assignment.in_all_groups(known_BT)


def _first_input(layer: FocusLayer, hidden_BTE: Tensor, padding_BT: Tensor | None) -> tuple[Tensor, Tensor]:
    """(B, E) the first real token's input of this layer, and (B, T) positions counted from that token."""
    history, before = layer.current_pass.history, layer.current_pass.before
    (batch, new), device = hidden_BTE.shape[:2], hidden_BTE.device
    count_T = torch.arange(new, device=device)
    if history is not None and before and history.first_input is not None:
        real_B = torch.zeros(batch, dtype=torch.int64) if history.first_real is None else history.first_real
        return history.first_input.to(device), (before - real_B)[:, None].to(device) + count_T
    real_BT = torch.ones(batch, new, device=device) if padding_BT is None else padding_BT
    start_B = real_BT.to(torch.int8).argmax(dim=1)
    first_BE = hidden_BTE[torch.arange(batch, device=device), start_B].detach()
    if history is not None:
        history.first_input = first_BE.clone()
    return first_BE, count_T - start_B[:, None]


def _on_gpu(layer: FocusLayer, router: CentroidRouter, hidden: Tensor) -> Assignment | None:
    """Groups by every top-k of the heads, text sinks in all of them, in one kernel; None where it takes no such call.

    With this kernel, and factors in that of short texts, a text of 1,024 tokens went from 0.64 to 0.76 of full
    attention's speed on an H100 (LOG.md, 2026-11-27).
    """
    owner, current, history = layer.owner, layer.current_pass, layer.current_pass.history
    config = owner.config
    if config.assignment != "causal" or not router.routes_on_gpu(hidden):
        return None
    from focus_runtime.routing.on_gpu import route_on_gpu  # needs Triton

    if config.text_sinks is not None and history is not None:
        if current.before == 0:
            history.first_input = torch.select_copy(hidden, 1, 0)
        elif history.first_input is None or history.first_input.dtype != hidden.dtype:
            return None
    asked = layer.known_top_ks
    if len(asked) >= MOST_SETS or hidden.shape[0] * hidden.shape[1] > MOST_TOKENS:
        asked = ()
    top_ks = asked if config.top_k in asked else (*asked, config.top_k)
    looks = config.text_sinks is not None and layer.index >= config.text_sinks_from
    sinks = _sinks_to_find(layer, hidden) if looks else None
    weights_EK, potential = router.scoring_weights(), router.potential
    result = tried(ROUTING, hidden, lambda: route_on_gpu(hidden, weights_EK, potential, top_ks, sinks))
    if result is None:
        return None
    probabilities_BTK, sets_SBT, found_BT = result
    owner.found_sinks.note(layer.index, found_BT)
    return Assignment(
        probabilities_BTK,
        sets_SBT[top_ks.index(config.top_k)],
        potential,
        exact=True,
        everywhere=found_BT,
        by_top_k=(asked, sets_SBT[: len(asked)]) if asked else None,
    )


def _sinks_to_find(layer: FocusLayer, hidden: Tensor) -> TextSinks:
    """What the kernel needs to find text sinks."""
    from focus_runtime.routing.on_gpu import TextSinks  # needs Triton

    config, current = layer.owner.config, layer.current_pass
    history, before, padding_B = current.history, current.before, None
    assert config.text_sinks is not None, "the layer looks"
    known_BT = layer.owner.found_sinks.before(layer.index, hidden.shape[:2], hidden.device)
    first_BE = None if history is None else history.first_input
    if first_BE is None:
        first_BE = hidden if hidden.shape[0] == 1 else hidden[:, 0].contiguous()  # one text begins with it
    elif before:
        assert history is not None, "it has the first input"
        first_BE, padding_B = first_BE.to(hidden.device).contiguous(), history.first_real
    known_BT = None if known_BT is None else known_BT.contiguous()
    return TextSinks(first_BE, known_BT, config.text_sinks, config.num_sinks - before, padding_B)
