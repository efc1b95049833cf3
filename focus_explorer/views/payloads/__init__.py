"""What the page gets from Python: one `TypedDict` for each JSON object.

`assets/js/core/payloads.d.ts` declares the same types under the same names; tests/explorer/views/test_payloads.py
compares both. A `TypedDict` of another name is a part that only Python knows.
"""

from __future__ import annotations

from typing import is_typeddict

from focus_explorer.views.payloads import centroids, comparisons, runs, statistics

PAYLOADS: dict[str, type] = {
    name: value
    for module in (centroids, comparisons, runs, statistics)
    for name, value in vars(module).items()
    if is_typeddict(value) and value.__module__ == module.__name__ and name.endswith("Payload")
}
