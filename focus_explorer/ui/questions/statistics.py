"""Questions of the Statistics view."""

from __future__ import annotations

from focus_explorer.services.service import Service
from focus_explorer.services.statistics.payloads import StatisticsPayloads
from focus_explorer.ui.parameters import Payload, Question, layer_of, run_of


def _payloads(service: Service) -> StatisticsPayloads:
    return service.part(StatisticsPayloads)


def overview(service: Service, question: Question) -> Payload:
    """Statistics of a run and of its layers: run."""
    return _payloads(service).overview(run_of(question))


def of_layer(service: Service, question: Question) -> Payload:
    """Groups of one layer: run, layer."""
    return _payloads(service).layer(run_of(question), layer_of(question))


def pairs(service: Service, question: Question) -> Payload:
    """Pairs of one layer: run, layer."""
    return _payloads(service).pairs(run_of(question), layer_of(question))


def agreement(service: Service, question: Question) -> Payload:
    """Agreement with another run of the same tokens: run, other."""
    return _payloads(service).agreement(run_of(question), run_of(question, "other"))


def measure(service: Service, question: Question) -> Payload:
    """Start measuring what is missing: run; attention, whether full attention too."""
    return _payloads(service).measure(run_of(question), attention=question.get("attention") is True)


def stop(service: Service, question: Question) -> Payload:
    """Stop measuring: run."""
    return _payloads(service).stop(run_of(question))


def measurement(service: Service, question: Question) -> Payload:
    """State of the measurement: run."""
    return _payloads(service).measurement(run_of(question))


QUESTIONS = {
    "statistics": overview,
    "statistics_layer": of_layer,
    "statistics_pairs": pairs,
    "statistics_agreement": agreement,
    "statistics_measure": measure,
    "statistics_stop": stop,
    "statistics_job": measurement,
}
