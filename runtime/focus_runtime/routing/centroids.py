"""Centroids: the trained routers of all layers of a model, with their settings and origin."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from focus_runtime.budget import HeadException, heads_of
from focus_runtime.config import FocusConfig
from focus_runtime.errors import CentroidFileError, ConfigError
from focus_runtime.models.structure import attention_modules, head_counts, hidden_size
from focus_runtime.routing.router import Assignment, CentroidRouter


@dataclass(eq=False)
class Centroids:
    """Routers of a model with what is known about them."""

    routers: dict[int, CentroidRouter]  # by layer number
    config: FocusConfig  # that they were trained with
    base_model: str = ""  # the model they belong to, "" if unknown
    base_fingerprint: str = ""
    num_model_layers: int | None = None  # attention layers of that model, None if unknown
    training: dict[str, Any] = field(default_factory=dict)  # summary of the training, free-form JSON values
    sha256: str = ""  # hash of the file, "" when not from a file
    name: str = ""
    warnings: list[str] = field(default_factory=list)  # remarks of validation that do not forbid use
    origin: str = ""  # repository and commit that the file was fetched from, "" for other files

    @property
    def hidden_size(self) -> int:
        """d, width of the hidden states the routers read."""
        return next(iter(self.routers.values())).projection.shape[0]

    @property
    def has_potentials(self) -> bool:
        """True when every layer carries column potentials."""
        return all(router.has_potential for router in self.routers.values())

    def check_fits(self, model: nn.Module) -> None:
        """Refuse a model of another shape."""
        layers, width, heads = attention_modules(model), hidden_size(model), head_counts(model).query
        name = (self.name or "these centroids") + (f" (made for {self.base_model})" if self.base_model else "")
        another = "choose the model the file was trained for, or another file"
        if width != self.hidden_size:
            raise CentroidFileError(
                f"{name} read hidden states of width {self.hidden_size}, but the model's are {width} wide", fix=another
            )
        total = self.num_model_layers
        beyond = [i for i in self.routers if i not in layers]
        if total not in (None, len(layers)) or (beyond and total is None):
            count = total or max(self.routers) + 1
            raise CentroidFileError(
                f"{name} are for a model of {count} attention layers, but the model has {len(layers)}", fix=another
            )
        if beyond:
            raise CentroidFileError(
                f"{name} have a router for layer {beyond[0]}, which is no attention layer of the model", fix=another
            )
        missing = sorted(set(layers) - set(self.routers))
        if missing and self.config.layers is None:
            raise CentroidFileError(
                f"{name} have no router for layer {missing[0]} of the model",
                expected=f"one for each of its {len(layers)} attention layers, or a list of those that have one",
                fix="choose another file, or list the layers in its configuration: the others keep full attention",
            )
        factors = next(iter(self.routers.values())).logit_factors
        if factors is not None and factors.numel() != heads:
            raise CentroidFileError(
                f"{name} have factors for {factors.numel()} query heads, but the model's layers have {heads}",
                fix=another,
            )

    def check_budget(self, model: nn.Module, budget: Iterable[HeadException]) -> None:
        """Refuse a budget with layers or heads that do not exist."""
        counts = head_counts(model)
        for entry in budget:
            if entry.layer not in self.routers:
                raise ConfigError(
                    f"the budget names layer {entry.layer}, which has no router",
                    expected=f"a layer of {self.name or 'these centroids'}: {sorted(self.routers)}",
                )
            if not heads_of(entry, counts):
                kind, heads = ("query", counts.query) if entry.head is None else ("key-value", counts.key)
                raise ConfigError(
                    f"the budget names {entry.place}, but a layer of this model has {heads} {kind} heads",
                    expected=f"heads 0 to {heads - 1}",
                    fix="tune the budget for this model",
                )


def continued_centroids(model: nn.Module, initial: Centroids, config: FocusConfig) -> Centroids:
    """Copies of trained routers under other settings, to train them further; groups, routing size and layers stay."""
    initial.check_fits(model)
    name = initial.name or "the centroids to start from"
    router = next(iter(initial.routers.values()))
    shape = (router.centroids.shape[0], router.projection.shape[1])
    if shape != (config.num_groups, config.routing_dim):
        raise ConfigError(
            f"{name} has {shape[0]} groups and routing size {shape[1]}",
            expected=f"the {config.num_groups} groups and routing size {config.routing_dim} of this training",
        )
    layers = config.layers if config.layers is not None else tuple(attention_modules(model))
    if set(layers) != set(initial.routers):
        raise ConfigError(
            f"{name} has routers in layers {sorted(initial.routers)}", expected=f"the layers {sorted(layers)}"
        )
    routers = {}
    for index in layers:
        own = routers[index] = copy.deepcopy(initial.routers[index])
        own.config = config
    return Centroids(routers, config, num_model_layers=len(attention_modules(model)), name="trained")


def random_centroids(model: nn.Module, config: FocusConfig, *, seed: int = 0, name: str = "random") -> Centroids:
    """Untrained routers that fit a model, the null baseline for anything learned. Calibrate potentials before causal
    use."""
    generator, config = torch.Generator().manual_seed(seed), config.replace(logit_factors=False)
    layers = config.layers if config.layers is not None else tuple(attention_modules(model))
    routers = {}
    for index in layers:
        routers[index] = CentroidRouter(hidden_size(model), config)
        routers[index].reset(generator)
    total = len(attention_modules(model))
    digest = hashlib.sha256(f"random seed={seed} {config.to_json()} d={hidden_size(model)} L={total}".encode())
    return Centroids(
        routers, config, num_model_layers=total, name=name, sha256=digest.hexdigest(), training={"random_seed": seed}
    )


class NoGroups(CentroidRouter):
    """A router that puts no token into any group."""

    by_centroids = False

    def own_assignment(self, hidden: Tensor, **_: Any) -> Assignment:
        """Uniform probabilities and empty memberships, whatever the hidden states."""
        groups, device = self.config.num_groups, hidden.device
        return Assignment(
            torch.full((*hidden.shape[:2], groups), 1 / groups, device=device),
            torch.zeros(hidden.shape[:2], dtype=torch.int64, device=device),
            torch.zeros(groups, device=device),
        )


def no_groups(centroids: Centroids) -> Centroids:
    """Window and sinks only, for the same model, layers and settings as `centroids`."""
    routers: dict[int, CentroidRouter] = {}
    config = centroids.config.replace(logit_factors=False)
    for index, router in centroids.routers.items():
        empty = NoGroups(1, config)
        empty.projection = router.projection  # its width is what a model is checked against
        empty.centroids = router.centroids
        empty.has_potential = True
        routers[index] = empty
    return dataclasses.replace(centroids, routers=routers, config=config, name="window and sinks only", sha256="")


def has_no_groups(centroids: Centroids) -> bool:
    """Whether no token has a group under these centroids, so that dominance is undefined."""
    return all(isinstance(router, NoGroups) for router in centroids.routers.values())
