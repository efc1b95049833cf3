"""The page's questions about pairs: parts of a mask, pairs by distance, full attention under the mask."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from focus_explorer.errors import InputError
from focus_explorer.services.pairs import SparsityViews
from focus_explorer.services.service import Service

Question = dict[str, Any]

_VIEWS: WeakKeyDictionary[Service, SparsityViews] = WeakKeyDictionary()


def _views(service: Service) -> SparsityViews:
    return _VIEWS.setdefault(service, SparsityViews(service))


def _number(question: Question, name: str) -> int:
    value = question.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} is {value!r}", expected="a whole number")
    return value


def _range(question: Question, name: str) -> tuple[int, int]:
    value = question.get(name)
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(end, int) for end in value):
        raise InputError(f"{name} is {value!r}", expected="first and last token")
    return value[0], value[1] + 1


def mask_tile(service: Service, question: Question) -> dict[str, Any]:
    """Pairs by cause in a rectangle: run, layer, rows and keys as [first, last]."""
    rows, keys = _range(question, "rows"), _range(question, "keys")
    return _views(service).tile(str(question.get("run")), _number(question, "layer"), rows, keys)


def pair_distances(service: Service, question: Question) -> dict[str, Any]:
    """Pairs of one layer by distance: run, layer."""
    return _views(service).distances(str(question.get("run")), _number(question, "layer"))


def pair_distances_mean(service: Service, question: Question) -> dict[str, Any]:
    """Pairs by distance, mean over layers: run."""
    return _views(service).distance_mean(str(question.get("run")))


def attention(service: Service, question: Question) -> dict[str, Any]:
    """Full attention under the mask, or how far its measurement is: run."""
    return _views(service).attention(str(question.get("run")))


def attention_links(service: Service, question: Question) -> dict[str, Any]:
    """Strongest links of one layer: run, layer."""
    return _views(service).links(str(question.get("run")), _number(question, "layer"))


def measure_attention(service: Service, question: Question) -> dict[str, Any]:
    """Start measuring full attention: run."""
    return _views(service).start(str(question.get("run")))


def stop_attention(service: Service, question: Question) -> dict[str, Any]:
    """Stop measuring: run."""
    return _views(service).stop(str(question.get("run")))


SPARSITY_ANSWERS = {
    "mask_tile": mask_tile,
    "pair_distances": pair_distances,
    "pair_distances_mean": pair_distances_mean,
    "attention": attention,
    "attention_links": attention_links,
    "measure_attention": measure_attention,
    "stop_attention": stop_attention,
}
