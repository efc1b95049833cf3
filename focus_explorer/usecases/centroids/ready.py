"""Centroids made ready for a loaded model: checked against it, drawn at random, balanced on the sample texts."""

from __future__ import annotations

import copy
import hashlib
from typing import TYPE_CHECKING, Any

from focus_explorer.usecases.models import LoadedModel
from focus_explorer.usecases.service import Latest
from focus_explorer.usecases.texts import all_samples
from focus_runtime.config import FocusConfig
from focus_runtime.text.special import DEFAULT, text_ids, training_note

if TYPE_CHECKING:
    from torch import Tensor

    from focus_runtime.routing.centroids import Centroids
    from focus_runtime.routing.router import Assignment


CALIBRATION_TOKENS = 2048
CHECKED_TOKENS = 1024  # that groups are tried on where a file is checked against a model
KEPT_POTENTIALS = 16  # sets of them, each K numbers a layer
RANDOM_SEED = 0  # of the centroids that a user gets under the name "random"
DRAWN = ("num_groups", "routing_dim", "top_k", "window")  # what a user chooses of them
LIKE_SHIPPED = {"num_groups": 8}  # what differs from `FocusConfig`: a baseline has the shape of what it stands beside
# layer -> (K,), by hash of what they were estimated from
_potentials: Latest[str, dict[int, Tensor]] = Latest(KEPT_POTENTIALS)


def calibration_ids(loaded: LoadedModel, special_tokens: str = DEFAULT) -> list[int]:
    """The tokens of the sample texts that groups are balanced on if nothing better is known; they fit the context."""
    from focus_runtime.models.structure import context_length

    ids = text_ids(loaded.tokenizer, all_samples(), special_tokens)
    return ids[: min(CALIBRATION_TOKENS, context_length(loaded.model) or CALIBRATION_TOKENS)]


def calibrate(loaded: LoadedModel, centroids: Centroids, special_tokens: str = DEFAULT) -> None:
    """Estimate the column potentials of centroids on the sample texts, in place, and note that in their warnings.

    They are kept for the same model, centroids and settings: random centroids are balanced for every run that names
    them.
    """
    import torch

    from focus_runtime.fit.calibrate import calibrate_potentials
    from focus_runtime.models.devices import input_device

    ids = calibration_ids(loaded, special_tokens)
    key = _inputs(loaded, centroids, ids)
    known = _potentials.get(key)
    if known is None:
        calibrate_potentials(loaded.model, centroids, torch.tensor([ids], device=input_device(loaded.model)))
        known = _potentials.keep(key, {layer: one.potential.clone() for layer, one in centroids.routers.items()})
    for layer, router in centroids.routers.items():
        router.potential.copy_(known[layer])
        router.has_potential = True
    note = f"group balance (column potentials) estimated on {len(ids):,} tokens of the sample texts"
    centroids.warnings[:] = [w for w in centroids.warnings if "column potentials" not in w] + [note]


def _inputs(loaded: LoadedModel, centroids: Centroids, ids: list[int]) -> str:
    from focus_runtime.models.devices import device_names

    model = loaded.model
    named = (loaded.fingerprint, str(model.dtype), device_names(model), centroids.config, ids)
    digest = hashlib.sha256(repr(named).encode())
    for layer, router in centroids.routers.items():
        digest.update(f"{layer}".encode())
        for weights in (router.projection, router.centroids):
            digest.update(weights.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()


def random_config(like: Any) -> FocusConfig:
    """The configuration of random centroids: `DRAWN` of a request or configuration, else as the shipped files have."""
    chosen = {name: getattr(like, name) for name in DRAWN if getattr(like, name) is not None}
    return FocusConfig().replace(**LIKE_SHIPPED | chosen)


def ready_centroids(centroids: Centroids | None, loaded: LoadedModel, like: Any, seed: int) -> Centroids:
    """Check centroids of a file against a model, or draw random ones for it if there are none."""
    from focus_runtime.routing.centroids import random_centroids

    if centroids is None:
        centroids = random_centroids(loaded.model, random_config(like), seed=seed)
    check_model(centroids, loaded)
    return centroids


def groups_on_samples(loaded: LoadedModel, centroids: Centroids) -> list[str]:
    """Lines on what the groups do with a sample text: the pairs kept, and groups that no token chooses."""
    import torch

    from focus_runtime.composition.attach import compose
    from focus_runtime.measure.loss import final_hidden, layer_shares
    from focus_runtime.models.devices import input_device

    config, ids = centroids.config, calibration_ids(loaded)[:CHECKED_TOKENS]
    if config.assignment == "causal" and not centroids.has_potentials:
        centroids = copy.deepcopy(centroids)
        calibrate(loaded, centroids)
    focus = compose(loaded.model, centroids)
    try:
        with torch.no_grad():
            final_hidden(loaded.model, torch.tensor([ids], device=input_device(loaded.model)))
        kept = [layer_shares(masks)[0] for masks in focus.head_masks().values()]
        unused = {layer: _unchosen(own, config.num_groups) for layer, own in focus.assignments().items()}
    finally:
        focus.detach()
    text = f"{len(ids):,} tokens of the sample texts"
    never = [f"layer {layer}: groups {', '.join(map(str, groups))}" for layer, groups in unused.items() if groups]
    return [
        f"keeps {sum(kept) / len(kept):.1%} of the pairs of {text}",
        *([f"note: groups that none of {text} chooses at top-k {config.top_k} ({'; '.join(never)})"] if never else []),
    ]


def _unchosen(assignment: Assignment, num_groups: int) -> list[int]:
    """Groups without a token; tokens that belong to all groups choose none."""
    bits = assignment.membership
    if assignment.everywhere is not None:
        bits = bits[~assignment.everywhere]
    return [group for group in range(num_groups) if not bool((bits >> group & 1).any())]


def check_model(centroids: Centroids, loaded: LoadedModel) -> None:
    """Refuse centroids for a model of another shape (CentroidFileError); warn of other weights or special tokens."""
    centroids.check_fits(loaded.model)
    if centroids.base_fingerprint and centroids.base_fingerprint != loaded.fingerprint:
        centroids.warnings.append(
            f"trained on {centroids.base_model or 'a model'} with other weights than {loaded.name} has"
        )
    note = training_note(loaded.tokenizer, centroids.training)
    if note is not None:
        centroids.warnings.append(note)
