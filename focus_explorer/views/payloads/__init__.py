"""What the page gets from Python: one `TypedDict` for each JSON object.

`python -m deploy.site.payloads` writes them to `assets/js/core/payloads.d.ts` for the browser's scripts. A `TypedDict`
of another name is a part that only Python knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast, is_typeddict

from focus_explorer.views.payloads import centroids, comparisons, runs, statistics

PAYLOADS: dict[str, type] = {
    name: value
    for module in (centroids, comparisons, runs, statistics)
    for name, value in vars(module).items()
    if is_typeddict(value) and value.__module__ == module.__name__ and name.endswith("Payload")
}

_Payload = TypeVar("_Payload")


def picked(payload: type[_Payload], row: Mapping[str, Any], **others: Any) -> _Payload:
    """A payload whose values are the keyword arguments, and for all other keys the row's values of the same names."""
    return cast(_Payload, {key: others[key] if key in others else row[key] for key in payload.__annotations__})
