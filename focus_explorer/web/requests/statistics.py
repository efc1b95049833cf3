"""Requests of the Statistics view."""

from __future__ import annotations

from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics.payloads import StatisticsPayloads
from focus_explorer.web.parameters import Payload, Request, layer_of, run_of


def _payloads(service: Service) -> StatisticsPayloads:
    return service.part(StatisticsPayloads)


def overview(service: Service, request: Request) -> Payload:
    """Statistics of a run and of its layers: run."""
    return _payloads(service).overview(run_of(request))


def of_layer(service: Service, request: Request) -> Payload:
    """Groups of one layer: run, layer."""
    return _payloads(service).layer(run_of(request), layer_of(request))


def pairs(service: Service, request: Request) -> Payload:
    """Pairs of one layer: run, layer."""
    return _payloads(service).pairs(run_of(request), layer_of(request))


def agreement(service: Service, request: Request) -> Payload:
    """Agreement with another run of the same tokens: run, other."""
    return _payloads(service).agreement(run_of(request), run_of(request, "other"))


def measure(service: Service, request: Request) -> Payload:
    """Start measuring what is missing: run; attention, whether full attention too."""
    return _payloads(service).measure(run_of(request), attention=request.get("attention") is True)


def stop(service: Service, request: Request) -> Payload:
    """Stop measuring: run."""
    return _payloads(service).stop(run_of(request))


def measurement(service: Service, request: Request) -> Payload:
    """State of the measurement: run."""
    return _payloads(service).measurement(run_of(request))


REQUESTS = {
    "statistics": overview,
    "statistics_layer": of_layer,
    "statistics_pairs": pairs,
    "statistics_agreement": agreement,
    "statistics_measure": measure,
    "statistics_stop": stop,
    "statistics_job": measurement,
}
