"""Focus Explorer: a dashboard and command line over the Focus runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus_explorer.web.notebook import show

__all__ = ["show"]


def __getattr__(name: str) -> Any:
    """`show`, loaded when it is first used: the command line must start without the page's libraries."""
    if name == "show":
        from focus_explorer.web.notebook import show

        return show
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
