"""Requests of the Groups view and the map."""

from __future__ import annotations

from focus_explorer.errors import InputError
from focus_explorer.usecases.groups import agreement_payload, group_payload
from focus_explorer.usecases.labels import group_names, name_group
from focus_explorer.usecases.maps import map_neighbours, map_payload
from focus_explorer.usecases.service import Service
from focus_explorer.web.parameters import Payload, Request, layer_of, run_of, whole_number


def groups(service: Service, request: Request) -> Payload:
    """Statistics of every group of every layer: run."""
    return group_payload(service.database, run_of(request))


def names(service: Service, request: Request) -> Payload:
    """Name of every group of every layer: run."""
    return group_names(service.database, run_of(request))


def rename(service: Service, request: Request) -> Payload:
    """Give a group a name: run, layer, group, name."""
    name, group = request.get("name"), whole_number(request, "group")
    if not isinstance(name, str):
        raise InputError(f"the name is {name!r}", expected="text")
    return name_group(service, run_of(request), layer_of(request), group, name)


def agreement(service: Service, request: Request) -> Payload:
    """Agreement of every two layers: run."""
    return agreement_payload(service.database, run_of(request))


def group_map(service: Service, request: Request) -> Payload:
    """Tokens in two dimensions: run; layer, None for all layers; quick.

    With `quick` a map that is not stored yet is replaced by a PCA, which takes no time.
    """
    return map_payload(service, run_of(request), _map_layer(request), quick=request.get("quick") is True)


def neighbours(service: Service, request: Request) -> Payload:
    """The tokens most like one: run; layer, None for all layers; token."""
    return map_neighbours(service, run_of(request), _map_layer(request), whole_number(request, "token"))


def _map_layer(request: Request) -> int | None:
    layer = request.get("layer")
    if layer is None or (isinstance(layer, int) and not isinstance(layer, bool)):
        return layer
    raise InputError(f"the layer is {layer!r}", expected="a layer number, or nothing for all layers")


REQUESTS = {
    "groups": groups,
    "group_names": names,
    "name_group": rename,
    "agreement": agreement,
    "map": group_map,
    "map_neighbours": neighbours,
}
