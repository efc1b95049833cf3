"""Which dropped pairs made Focus predict one token worse, by layer and head.

Adding a dropped key j to what query i of one head sees changes that head's output from o to o + p (v_j - o), where p is
the probability that the key gets. To first order the token's loss changes by the scalar product p g (v_j - o), where g
is the gradient of the loss with respect to o: a forward and a backward pass give it for every dropped pair in closed
form. The pairs that promise most are then verified: each is really added to the mask and the model run on from there.

Shape suffixes: B batch, H query heads, Q queries, T keys, D head size, V vocabulary.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from focus_runtime.budget import HeadCounts, query_numbers
from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.heads import HeadMask
from focus_runtime.composition.modes import AddedPairs
from focus_runtime.composition.observe import observe_focus, recorded_outputs, resumed_at
from focus_runtime.composition.state import Call, FocusLayer
from focus_runtime.errors import Cancelled, InputError
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.counts import pair_totals
from focus_runtime.mask.rule import CAUSES
from focus_runtime.measure.loss import final_hidden, vocabulary_logits
from focus_runtime.models.devices import input_device
from focus_runtime.models.structure import attention_modules, cache_argument, hooked, sliding_window_of

CANDIDATES, VERIFIED = 64, 10
ROWS = 32  # queries of one head whose keys are looked at together
Progress = Callable[[str, float], None]


class Replay:
    """One text under Focus with the hidden states after every layer kept, and its keys and values where they can be.

    A token's hidden states depend on no later token, so what comes before the first change is not computed again:
    layers before it are skipped, and so are earlier tokens where the cache can be cut (causal assignment, no layer with
    a sliding window of its own).
    """

    @torch.no_grad()
    def __init__(self, focus: FocusModel, ids: list[int]) -> None:
        self.focus = focus
        self.ids = torch.tensor([ids], device=input_device(focus.model))
        modules = attention_modules(focus.model).values()
        self._cuts = focus.config.assignment == "causal" and not any(map(sliding_window_of, modules))
        self._cache = DynamicCache() if self._cuts else None
        with recorded_outputs(focus.model) as self._recorded:
            self.hidden = self._read(self.ids, self._cache)

    @torch.no_grad()
    def changed(self, first_layer: int, first_token: int, pairs: Mapping[int, Tensor]) -> Tensor:
        """Hidden states (1, n, d) of the last n tokens, from `first_token` on or more, under added pairs.

        No pair is before `first_layer` or `first_token`.
        """
        start = first_token if self._cuts else 0
        cache = None
        if self._cache is not None and start:
            cache = copy.deepcopy(self._cache)
            cache.crop(start - self.ids.shape[1])
        resumed = resumed_at(self.focus.model, first_layer, self._recorded, start)
        with self.focus.entered(AddedPairs(pairs, self.focus.focused_layers)), resumed:
            return self._read(self.ids[:, start:], cache)

    def _read(self, ids: Tensor, cache: Any) -> Tensor:
        if cache is None:
            return final_hidden(self.focus.model, ids)
        network: Any = self.focus.model
        given = cache_argument(network.base_model, cache)
        return network.base_model(input_ids=ids, **given, use_cache=True).last_hidden_state


@dataclass(frozen=True, slots=True)
class MissingLink:
    """One dropped pair of one head, and what adding it does to the loss of one token."""

    layer: int
    head: int
    query: int
    key: int
    probability: float  # that the key would get beside the keys which the query sees
    predicted: float  # first-order change of the token's loss in nats; negative where the link would help
    nll: float | None = None  # the token's loss in nats with the link added; None where it was not verified


@dataclass(frozen=True, slots=True)
class MissingLinks:
    """The dropped pairs that would help one token most, and its losses in nats."""

    token: int  # position of the token that is predicted; the queries lie before it
    nll_full: float
    nll_focus: float
    links: tuple[MissingLink, ...]  # the most promising, verified ones first, each kind by what it gains
    nll_together: float | None  # with all verified links added at once; None where none was verified
    dropped_pairs: int  # how many pairs were compared, over all layers and query heads


def missing_links(
    focus: FocusModel,
    ids: Sequence[int],
    token: int,
    *,
    candidates: int = CANDIDATES,
    verify: int = VERIFIED,
    progress: Progress = lambda stage, fraction: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> MissingLinks:
    """Find and verify the dropped pairs that explain one token's loss.

    Args:
        focus: the composition, its backend "auto": the others have no gradient everywhere.
        ids: T token ids; those before `token`, the position of the predicted one, are read.
        candidates: links kept by their first-order gain; `verify` of them are added and run.
        cancelled: called between steps; True raises Cancelled.
    """
    if not 1 <= token < len(ids):
        raise InputError(
            f"token {token} has no prediction", expected=f"1 to {len(ids) - 1}: the first token has none before it"
        )

    def step(stage: str, fraction: float) -> None:
        if cancelled():
            raise Cancelled("stopped")
        progress(stage, fraction)

    step("Reading with Focus, forward and back", 0.02)
    found = attribute(focus, ids, token, candidates=candidates)
    step("Reading with full attention", 0.3)
    text = torch.tensor([list(ids[:token])], device=input_device(focus.model))
    with torch.no_grad(), focus.measured_full_attention():
        nll_full = _last_nll(focus.model, final_hidden(focus.model, text), ids[token]).item()
    chosen, others = found.links[:verify], found.links[verify:]
    if not chosen:
        return replace(found, nll_full=nll_full)
    step("Keeping the hidden states", 0.4)
    kept = Replay(focus, list(ids[:token]))
    nll_focus = _last_nll(focus.model, kept.hidden, ids[token]).item()
    checked = []
    for number, link in enumerate(chosen):
        step(f"Adding link {number + 1} of {len(chosen)}", 0.5 + 0.4 * number / len(chosen))
        checked.append(replace(link, nll=_with_links(kept, [link], ids[token])))
    step("Adding all of them", 0.92)
    together = _with_links(kept, chosen, ids[token])
    checked.sort(key=lambda link: link.nll or 0.0)
    return MissingLinks(token, nll_full, nll_focus, (*checked, *others), together, found.dropped_pairs)


def _with_links(kept: Replay, links: Sequence[MissingLink], target: int) -> float:
    """The loss in nats of the token after the text, with links added."""
    pairs: dict[int, list[tuple[int, int, int]]] = {}
    for link in links:
        pairs.setdefault(link.layer, []).append((link.head, link.query, link.key))
    tensors = {layer: torch.tensor(own) for layer, own in pairs.items()}
    hidden = kept.changed(min(pairs), min(link.query for link in links), tensors)
    return _last_nll(kept.focus.model, hidden, target).item()


def _last_nll(model: Any, hidden: Tensor, target: int) -> Tensor:
    """Loss in nats of the token that follows the last one."""
    logits_V = vocabulary_logits(model, hidden[:, -1:])[0, 0]
    return torch.logsumexp(logits_V, dim=0) - logits_V[target]


def attribute(focus: FocusModel, ids: Sequence[int], token: int, *, candidates: int = CANDIDATES) -> MissingLinks:
    """First-order effect of adding each dropped pair on one token's loss; the most helpful ones, none verified.

    `nll_full` is NaN: only Focus was run.
    """
    observed: list[tuple[FocusLayer, Call, Tensor]] = []
    network: Any = focus.model
    text = torch.tensor([list(ids[:token])], device=input_device(focus.model))
    start = network.get_input_embeddings().register_forward_hook(lambda module, args, out: out.requires_grad_())
    with hooked([start]), torch.enable_grad(), observe_focus(focus, lambda *seen: observed.append(seen)):
        loss = _last_nll(focus.model, final_hidden(focus.model, text), ids[token])
        gradients = torch.autograd.grad(loss, [out for _, _, out in observed], allow_unused=True)
    masks, best, dropped = focus.head_masks(), _Best(candidates), 0
    heads: list[_Head] = []
    with torch.no_grad():
        for (layer, call, out_BQHD), gradient in zip(observed, gradients, strict=True):
            dropped += _dropped_pairs(masks[layer.index], call.counts)
            if gradient is not None:
                heads += _heads(layer.index, call, out_BQHD, masks[layer.index], gradient)
        for head in sorted(heads, key=lambda one: float(one.bound.max()), reverse=True):
            _look_through(head, best)
    return MissingLinks(token, float("nan"), float(loss.detach()), best.links(), None, dropped)


class _Best:
    """The links with the most negative change so far; a link must lower the loss."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._heap: list[tuple[float, tuple[int, int, int, int, float]]] = []  # the worst of the best comes first

    @property
    def bar(self) -> float:
        """Change in nats that a link must beat."""
        return -self._heap[0][0] if len(self._heap) == self.most else 0.0

    def add(self, change: float, layer: int, head: int, query: int, key: int, probability: float) -> None:
        entry = (-change, (layer, head, query, key, probability))
        (heapq.heappush if len(self._heap) < self.most else heapq.heappushpop)(self._heap, entry)

    def links(self) -> tuple[MissingLink, ...]:
        ordered = sorted(self._heap, reverse=True)
        return tuple(MissingLink(*where, predicted=-gain) for gain, where in ordered)


@dataclass(slots=True)
class _Head:
    """One query head of one layer: what its links can change, before they are looked at."""

    layer: int
    call: Call
    mask: HeadMask
    head: int
    slope: Tensor  # (T, D) gradient of the loss with respect to the head's output
    out: Tensor  # (T, D) that output
    bound: Tensor  # (T,) nats by which a link of each query can lower the loss at most, its share of attention being 1

    @property
    def key_head(self) -> int:
        return self.head // self.call.counts.shared_by


def _heads(
    layer: int, call: Call, out_BQHD: Tensor, masks: Sequence[HeadMask], gradient_BQHD: Tensor
) -> Iterator[_Head]:
    """The query heads of one layer that drop pairs."""
    exact = torch.promote_types(call.query.dtype, torch.float32)
    for mask in masks:
        if mask.group.setting.full:
            continue
        for head in query_numbers(mask.group, call.counts):
            value_TD = call.value[0, head // call.counts.shared_by].to(exact)
            slope_QD, out_QD = gradient_BQHD[0, :, head].to(exact), out_BQHD[0, :, head].to(exact)
            bound_Q = (slope_QD * out_QD).sum(dim=1) - (slope_QD @ value_TD.T).amin(dim=1)
            yield _Head(layer, call, mask, head, slope_QD, out_QD, bound_Q)


def _look_through(one: _Head, best: _Best) -> None:
    """The links of one head, in blocks of queries; those that cannot beat the links known are skipped."""
    call, mask, slope_QD = one.call, one.mask, one.slope
    bits_T, exact = mask.membership[0], slope_QD.dtype
    position_T = torch.arange(bits_T.numel(), device=bits_T.device)
    key_TD, value_TD = call.key[0, one.key_head].to(exact), call.value[0, one.key_head].to(exact)
    for rows_Q in one.bound.argsort(descending=True).split(ROWS):
        if -float(one.bound[rows_Q[0]]) >= best.bar:
            break
        scores_QT = call.query[0, one.head][rows_Q].to(exact) @ key_TD.T * call.scoring.scale
        scores_QT = call.scoring.capped(scores_QT)
        allowed_QT = allowed_pairs(bits_T[rows_Q], bits_T, position_T[rows_Q], position_T, mask.rule)
        distance_QT = position_T[rows_Q][:, None] - position_T
        missing_QT = ~allowed_QT & (distance_QT >= 0) & (distance_QT <= mask.rule.farthest(bits_T.numel()))
        seen_Q1 = scores_QT.masked_fill(~allowed_QT, float("-inf")).logsumexp(dim=1, keepdim=True)
        share_QT = torch.sigmoid(scores_QT - seen_Q1)  # of the added key among it and those that are seen
        pull_QT = slope_QD[rows_Q] @ value_TD.T - (slope_QD * one.out)[rows_Q].sum(dim=1, keepdim=True)
        change_QT = (share_QT * pull_QT).masked_fill(~missing_QT, 0.0)
        changes, places = change_QT.flatten().topk(min(best.most, change_QT.numel()), largest=False)
        for change, place in zip(changes.tolist(), places.tolist(), strict=True):
            if change >= best.bar:
                break
            row, key = divmod(place, bits_T.numel())
            best.add(change, one.layer, one.head, int(rows_Q[row]), key, float(share_QT[row, key]))


def _dropped_pairs(masks: Sequence[HeadMask], counts: HeadCounts) -> int:
    """Pairs within the layer's reach that its query heads drop."""
    dropped = 0
    for mask in masks:
        if mask.group.setting.full:
            continue
        pairs = pair_totals(mask.membership[0].cpu().numpy()[None], [mask.rule])[0]
        own = int(pairs[CAUSES.index("dropped")]) - mask.rule.unreached(mask.membership.shape[1])
        dropped += own * len(query_numbers(mask.group, counts))
    return dropped
