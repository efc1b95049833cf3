"""Requests of every view of a run: cells of a layer, and classes of words."""

from __future__ import annotations

from focus_explorer.services.run_payload import layer_cells, word_classes
from focus_explorer.services.service import Service
from focus_explorer.ui.parameters import Payload, Request, run_of


def cells(service: Service, request: Request) -> Payload:
    """Membership, probabilities and entropy of one layer's tokens: run, layer."""
    return layer_cells(service.database, run_of(request), request.get("layer"))


def classes(service: Service, request: Request) -> Payload:
    """The class of every token's word: run."""
    return word_classes(service.database, run_of(request))


REQUESTS = {"layer_cells": cells, "word_classes": classes}
