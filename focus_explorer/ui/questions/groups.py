"""Questions of the Groups view and the map."""

from __future__ import annotations

from focus_explorer.errors import InputError
from focus_explorer.services.groups import agreement_payload, group_payload
from focus_explorer.services.maps import map_payload
from focus_explorer.services.service import Service
from focus_explorer.ui.parameters import Payload, Question, run_of


def groups(service: Service, question: Question) -> Payload:
    """Statistics of every group of every layer: run."""
    return group_payload(service.database, run_of(question))


def agreement(service: Service, question: Question) -> Payload:
    """Agreement of every two layers: run."""
    return agreement_payload(service.database, run_of(question))


def group_map(service: Service, question: Question) -> Payload:
    """Tokens in two dimensions: run; layer, None for all layers; quick.

    With `quick` a map that is not stored yet is replaced by a PCA, which takes no time.
    """
    layer = question.get("layer")
    if layer is not None and not isinstance(layer, int):
        raise InputError(f"the layer is {layer!r}", expected="a layer number, or nothing for all layers")
    return map_payload(service, run_of(question), layer, quick=question.get("quick") is True)


QUESTIONS = {"groups": groups, "agreement": agreement, "map": group_map}
