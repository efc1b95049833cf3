"""Requests of the Groups view and the map."""

from __future__ import annotations

from focus_explorer.errors import InputError
from focus_explorer.services.groups import agreement_payload, group_payload
from focus_explorer.services.maps import map_payload
from focus_explorer.services.service import Service
from focus_explorer.ui.parameters import Payload, Request, run_of


def groups(service: Service, request: Request) -> Payload:
    """Statistics of every group of every layer: run."""
    return group_payload(service.database, run_of(request))


def agreement(service: Service, request: Request) -> Payload:
    """Agreement of every two layers: run."""
    return agreement_payload(service.database, run_of(request))


def group_map(service: Service, request: Request) -> Payload:
    """Tokens in two dimensions: run; layer, None for all layers; quick.

    With `quick` a map that is not stored yet is replaced by a PCA, which takes no time.
    """
    layer = request.get("layer")
    if layer is not None and not isinstance(layer, int):
        raise InputError(f"the layer is {layer!r}", expected="a layer number, or nothing for all layers")
    return map_payload(service, run_of(request), layer, quick=request.get("quick") is True)


REQUESTS = {"groups": groups, "agreement": agreement, "map": group_map}
