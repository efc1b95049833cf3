"""The baseline without groups: window and sinks alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from focus_runtime.routing.centroids import Centroids
from focus_runtime.routing.router import Assignment, CentroidRouter


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
