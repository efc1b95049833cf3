"""Requests of every view of a run: cells of a layer, orders of groups, classes of words, predictions."""

from __future__ import annotations

from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.generate import LiveTexts
from focus_explorer.usecases.pairs import TokenAttentions
from focus_explorer.usecases.run_payload import (
    group_orders,
    layer_cells,
    prediction_changes,
    predictions,
    run_timings,
    word_classes,
)
from focus_explorer.usecases.service import Service
from focus_explorer.web.parameters import Payload, Request, run_of, whole_number


def cells(service: Service, request: Request) -> Payload:
    """Membership, probabilities and entropy of one layer's tokens: run, layer."""
    return layer_cells(service.database, run_of(request), request.get("layer"))


def orders(service: Service, request: Request) -> Payload:
    """Every token's groups by probability, of all layers where that is little: run, layer."""
    return group_orders(service.database, run_of(request), request.get("layer"))


def timings(service: Service, request: Request) -> Payload:
    """What was timed of a run so far: run."""
    return run_timings(service.database, run_of(request))


def trained_on(service: Service, request: Request) -> Payload:
    """What a run's centroids were trained on: run."""
    return service.part(CentroidCards).trained_on(run_of(request))


def classes(service: Service, request: Request) -> Payload:
    """The class of every token's word: run."""
    return word_classes(service.database, run_of(request))


def predicted(service: Service, request: Request) -> Payload:
    """The most probable tokens at one place: run, token."""
    return predictions(service.database, run_of(request), whole_number(request, "token"))


def changes(service: Service, request: Request) -> Payload:
    """Where the most probable token differs: run."""
    return prediction_changes(service.database, run_of(request))


def token_attention(service: Service, request: Request) -> Payload:
    """What a token attends to, as far as it is computed: run, token."""
    return service.part(TokenAttentions).state(run_of(request), whole_number(request, "token"))


def start_token_attention(service: Service, request: Request) -> Payload:
    """Compute what a token attends to: run, token."""
    service.part(TokenAttentions).start(run_of(request), whole_number(request, "token"))
    return token_attention(service, request)


def stop_token_attention(service: Service, request: Request) -> Payload:
    """Stop computing what a token attends to: run, token."""
    service.part(TokenAttentions).stop(run_of(request), whole_number(request, "token"))
    return token_attention(service, request)


def live_groups(service: Service, request: Request) -> Payload:
    """Groups of a text that is being typed: run, text, session."""
    text, session = (str(request.get(name) or "") for name in ("text", "session"))
    if service.names is not None:
        service.names.text(text)
    return service.part(LiveTexts).read(run_of(request), text, session)


REQUESTS = {
    "layer_cells": cells,
    "group_orders": orders,
    "timings": timings,
    "trained_on": trained_on,
    "word_classes": classes,
    "predictions": predicted,
    "prediction_changes": changes,
    "token_attention": token_attention,
    "token_attention_start": start_token_attention,
    "token_attention_stop": stop_token_attention,
    "live_groups": live_groups,
}
