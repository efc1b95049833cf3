"""`focus-explorer serve`: the page."""

from __future__ import annotations

import argparse

from focus_explorer.cli.options import add_compute, add_settings
from focus_explorer.services.analyze import AnalyzeRequest


def add_options(parser: argparse.ArgumentParser) -> None:
    """Address, database and what the form is filled with."""
    add_settings(parser, "host", "port", "db", "model", "centroids")
    add_compute(parser)
    parser.add_argument("--mcp", action="store_true", help="offer its functions to language models too (needs mcp)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Serve the page until it is stopped."""
    from focus_explorer.ui.gradio_import import import_gradio

    import_gradio()
    from focus_explorer.ui.shell import build_app

    request = AnalyzeRequest(
        model=arguments.model,
        centroids=arguments.centroids,
        device=arguments.device,
        dtype=arguments.dtype,
        backend=arguments.backend,
    )
    app = build_app(database=arguments.db, request=request)
    app.launch(host=arguments.host, port=arguments.port, mcp=arguments.mcp)
