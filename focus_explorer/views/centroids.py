"""The validation report of a centroid file as HTML; every value is escaped."""

from __future__ import annotations

from html import escape


def report_html(name: str, lines: list[str]) -> str:
    """The report of a valid file."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f'<div class="fe-done" role="status"><strong>{escape(name)} is valid</strong> '
        f"and now chosen on the Explore page.<ul>{items}</ul></div>"
    )
