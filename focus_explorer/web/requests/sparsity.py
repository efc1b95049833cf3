"""Requests of the Sparsity view: parts of a mask, pairs by distance, full attention under the mask."""

from __future__ import annotations

from focus_explorer.usecases.pairs import PairViews
from focus_explorer.usecases.service import Service
from focus_explorer.web.parameters import Payload, Request, run_of, span, whole_number


def _views(service: Service) -> PairViews:
    return service.part(PairViews)


def mask_tile(service: Service, request: Request) -> Payload:
    """Pairs by cause in a rectangle: run, layer, rows and keys as [first, last]; part, where heads differ."""
    rows, keys = span(request, "rows"), span(request, "keys")
    layer, part = whole_number(request, "layer"), whole_number(request, "part", 0)
    return _views(service).tile(run_of(request), layer, rows, keys, part)


def pair_distances(service: Service, request: Request) -> Payload:
    """Pairs of one layer by distance: run, layer."""
    return _views(service).distances(run_of(request), whole_number(request, "layer"))


def pair_distances_mean(service: Service, request: Request) -> Payload:
    """Pairs by distance, mean over layers: run."""
    return _views(service).distance_mean(run_of(request))


def attention(service: Service, request: Request) -> Payload:
    """Full attention under the mask, or the state of its measurement: run."""
    return _views(service).attention(run_of(request))


def attention_links(service: Service, request: Request) -> Payload:
    """Strongest links of one layer: run, layer."""
    return _views(service).links(run_of(request), whole_number(request, "layer"))


def measure_attention(service: Service, request: Request) -> Payload:
    """Start measuring full attention: run."""
    return _views(service).start(run_of(request))


def stop_attention(service: Service, request: Request) -> Payload:
    """Stop measuring: run."""
    return _views(service).stop(run_of(request))


REQUESTS = {
    "mask_tile": mask_tile,
    "pair_distances": pair_distances,
    "pair_distances_mean": pair_distances_mean,
    "attention": attention,
    "attention_links": attention_links,
    "measure_attention": measure_attention,
    "stop_attention": stop_attention,
}
