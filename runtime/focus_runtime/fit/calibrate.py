"""Column potentials from text, so that causal assignment is balanced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.composition.observe import observe_hidden_states, observe_routing
from focus_runtime.failures import Advice
from focus_runtime.fit.inputs import Texts, encode_domains
from focus_runtime.measure.loss import check_positions, final_hidden
from focus_runtime.measure.memory import within_memory
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids
from focus_runtime.routing.router import sinkhorn_potential
from focus_runtime.text.sequences import Mixture, even_sequences, recorded_special_tokens
from focus_runtime.text.special import DEFAULT

BALANCING = Advice(
    otherwise="close other programs, or choose another device or precision (--device, --dtype)",
    work="to balance the groups, ",
)
UPDATES = 300  # of a potential that balances the hard mask
FIRST_RATE = 0.3  # size of the first of them; it falls to 0


def hard_potential(logits: Tensor, start: Tensor) -> Tensor:
    """(K,) potentials of mean 0 under which equally many tokens choose each group first, for (T, K) logits.

    Sinkhorn balances soft mass; the hard mask uses the argmax, which may stay lopsided. This lowers the potential
    of groups that are chosen too often, with a falling step, and returns the best potential seen.
    """
    groups = logits.shape[1]
    potential, best, best_share = start.clone(), start.clone(), float("inf")
    for step in range(UPDATES):
        share = torch.bincount((logits + potential).argmax(dim=-1), minlength=groups) / logits.shape[0]
        if share.max().item() < best_share:
            best, best_share = potential.clone(), share.max().item()
        potential = balanced(potential, share, FIRST_RATE * (1.0 - step / UPDATES))
    return best - best.mean()


def balanced(potential: Tensor, share: Tensor, rate: float) -> Tensor:
    """(K,) potentials moved so that groups chosen too often become less likely; `share` is (K,), of all tokens."""
    return potential - rate * torch.log((share * share.numel()).clamp_min(0.05))


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Dropout is off while the block runs: Focus layers know none, and neither groups nor a teacher should be noisy."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


@torch.no_grad()
def calibrate_potentials(model: Any, centroids: Centroids, sequences: Tensor) -> Centroids:
    """Estimate every layer's column potential on some text, in place, so that the hard mask's groups are even.

    The text, (N, T) token ids, runs once with Sinkhorn assignment, so that deeper layers see the hidden states Focus
    gives them. Focus is not composed onto the frozen model yet.
    """
    with evaluation_mode(model), compose(model, centroids, assignment="sinkhorn") as focus:
        calibrate_composed(focus, centroids, sequences)
    return centroids


@torch.no_grad()
def calibrate_composed(focus: FocusModel, centroids: Centroids, sequences: Tensor) -> None:
    """`calibrate_potentials` on a model that has the centroids composed, with Sinkhorn assignment, outside any gate."""
    logits: dict[int, list[Tensor]] = {index: [] for index in centroids.routers}
    unfocused = set(centroids.routers) - set(focus.focused_layers)

    def collect(index: int, result: Tensor) -> None:
        logits[index].append(result.reshape(-1, result.shape[-1]))

    with (
        within_memory(focus.model, BALANCING),
        observe_routing(centroids, on_logits=collect),
        # routers of sliding-window layers that keep their own attention read their hidden states too
        observe_hidden_states(focus.model, unfocused, lambda index, hidden: centroids.routers[index].logits(hidden)),
    ):
        for ids in sequences.split(1):
            final_hidden(focus.model, ids)
    for index, router in centroids.routers.items():
        rows = torch.cat(logits[index])
        potential = sinkhorn_potential(rows[None], max(50, centroids.config.sinkhorn_iterations))[0]
        router.potential.copy_(hard_potential(rows, potential))
        router.has_potential = True


def balance_groups(
    model: Any,
    tokenizer: Any,
    centroids: Centroids,
    texts: Texts,
    *,
    count: int = 32,
    length: int = 1024,
    special_tokens: str = DEFAULT,
) -> None:
    """Balance the groups of trained centroids on other text, in place; `training["balanced"]` says on what.

    Each domain of the texts has its share of the `count` sequences, but at least one. Focus is not composed yet.
    """
    check_positions(model, length)
    ids = encode_domains(tokenizer, texts, length, special_tokens)
    sequences = even_sequences(ids, count, length)
    calibrate_potentials(model, centroids, sequences.to(input_device(model)))
    record: dict[str, Any] = {"sequences": sequences.shape[0], "seq_len": length}
    record |= recorded_special_tokens(ids)
    if isinstance(ids, Mixture):
        record["domains"] = [{"name": n, "weight": w} for n, w in zip(ids.names, ids.weights, strict=True)]
    centroids.training = centroids.training | {"balanced": record}
