"""The validation report of a centroid file as HTML; every value is escaped."""

from __future__ import annotations

from html import escape


def report_html(name: str, lines: list[str], *, known: bool = False) -> str:
    """The report of a valid file; of one that was here already when `known`."""
    valid = "is here already: nothing was added. It is" if known else "is valid and"
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f'<div class="fe-done" role="status"><strong>{escape(name)}</strong> {valid} now '
        f"chosen on the Explore page.<ul>{items}</ul></div>"
    )
