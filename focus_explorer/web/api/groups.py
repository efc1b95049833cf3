"""Agreement of layers and maps for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_explorer.usecases.labels import group_names, name_group
from focus_explorer.usecases.runs import layer_numbers
from focus_explorer.usecases.service import Service
from focus_explorer.web.api.request import ask

ALL_LAYERS = -1


class GroupFunctions:
    """Functions about groups."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def agreement(self, run_id: str) -> dict:
        """How far every two layers sort the tokens alike.

        Args:
            run_id: as listed by runs.

        Returns:
            layers: their numbers; agreement: layers x layers adjusted Rand indices (1 the same groups, 0 random);
            shuffled: least and most of neighbouring layers with one of them shuffled, null for a single layer;
            pairs: how many neighbours that were; seed.
        """
        return {"layers": layer_numbers(self.service.database, run_id)} | ask(self.service, "agreement", run_id)

    def group_names(self, run_id: str) -> dict:
        """What each group of each layer holds, in a few words, with the evidence.

        Args:
            run_id: as listed by runs.

        Returns:
            layers: their numbers; names: by layer and group, name (empty where nothing is clear), given (by people, or
            null) and evidence: the traits that tell the group best, each with phi (correlation, 0 to 1), share of the
            group's tokens with the trait, base rate in the text, covered (the part of the trait's tokens in this
            group) and p_value (probability that the best of all traits does as well in a group drawn at random);
            traits: how many were tried; random: by layer, the highest phi of random centroids' groups, null where not
            measured; least_phi, least_share and most_p_value: what a name needs.
        """
        return {"layers": layer_numbers(self.service.database, run_id)} | dict(
            group_names(self.service.database, run_id)
        )

    def name_group(self, run_id: str, layer: int, group: int, name: str) -> dict:
        """Give a group a name of your own, in every run with the same centroids; an empty one takes it back.

        Args:
            run_id: as listed by runs.
            layer: layer number.
            group: number of the group, from 0 for A.
            name: at most 60 characters.
        """
        return dict(name_group(self.service, run_id, layer, group, name))

    def map(self, run_id: str, layer: int = ALL_LAYERS, quick: bool = False) -> dict:
        """Tokens, and a layer's centroids, in two dimensions.

        Args:
            run_id: as listed by runs.
            layer: layer number; -1 for the map of all layers, which has no centroids.
            quick: a PCA at once where no map is stored; otherwise a UMAP is made and stored, which can take a minute.

        Returns:
            positions: the tokens drawn, at most 4,000 evenly spaced ones; x, y: their coordinates, without a unit;
            centroid_x, centroid_y: by group; method, parameters, seed; trustworthiness: 0 to 1, null where unknown;
            preliminary: whether this is the PCA.
        """
        return ask(self.service, "map", run_id, layer=None if layer == ALL_LAYERS else layer, quick=quick)


def functions(service: Service) -> dict[str, Callable[..., Any]]:
    """Name -> function."""
    made = GroupFunctions(service)
    return {
        "agreement": made.agreement,
        "group_names": made.group_names,
        "name_group": made.name_group,
        "map": made.map,
    }
