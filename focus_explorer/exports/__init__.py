"""Files of stored runs: tables, masks, figures, reports, bundles, and cards of centroid files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def templates(package: str, *, autoescape: bool = False) -> Environment:
    """The Jinja templates in the folder templates/ of a package; a name that they miss is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
