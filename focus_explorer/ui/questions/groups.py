"""What the page asks for the Groups tab and the map."""

from __future__ import annotations

from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.services.groups import agreement_payload, group_payload
from focus_explorer.services.service import Service

Question = dict[str, Any]


def groups(service: Service, question: Question) -> dict[str, Any]:
    """Statistics of every group of every layer."""
    return group_payload(service.database, str(question.get("run")))


def agreement(service: Service, question: Question) -> dict[str, Any]:
    """Agreement of every two layers."""
    return agreement_payload(service.database, str(question.get("run")))


def group_map(service: Service, question: Question) -> dict[str, Any]:
    """Tokens in two dimensions; a layer of None means all layers.

    With `quick` a map that is not stored yet is replaced by a PCA, which is there at once.
    """
    layer = question.get("layer")
    if layer is not None and not isinstance(layer, int):
        raise InputError(f"the layer is {layer!r}", expected="a layer number, or nothing for all layers")
    return service.projection_payload(str(question.get("run")), layer, quick=question.get("quick") is True)


QUESTIONS = {"groups": groups, "agreement": agreement, "map": group_map}
