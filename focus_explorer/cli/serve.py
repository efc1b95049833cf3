"""`focus-explorer serve`: the page."""

from __future__ import annotations

import argparse

from focus_explorer.cli.options import add_compute, add_settings
from focus_explorer.services.analyze import AnalyzeRequest

MODES = """
modes of hosting, see docs/hosting.md:
  private  the default: this machine alone reaches the page, and whoever does may do everything
  lab      --auth FILE or --trusted-header NAME: users log in; whoever has logged in may do everything
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Address, database, what the form is filled with, and who may do what."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = MODES
    add_settings(parser, "host", "port", "db", "model", "centroids")
    add_compute(parser)
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="timed passes of texts explored on the page (5, or 3 of a long text)"
    )
    parser.add_argument("--mcp", action="store_true", help="offer its functions to language models too (needs mcp)")
    _add_hosting(parser.add_argument_group("hosting"))
    parser.set_defaults(run=run)


def _add_hosting(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--auth", metavar="FILE", help="lab: users from a file that `focus-explorer users add` writes")
    group.add_argument(
        "--trusted-header", metavar="NAME", help="lab: the request header in which a proxy names the user"
    )
    group.add_argument(
        "--insecure", action="store_true", help="serve beyond this machine without login: everyone may do everything"
    )
    group.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name the page answers to, as behind a proxy; NAME[:PORT]; may be repeated",
    )
    group.add_argument(
        "--allow-path",
        action="append",
        default=[],
        metavar="FOLDER",
        help="models and centroid files in it may be named by path in the page's fields; may be repeated",
    )
    group.add_argument("--root-path", default="", metavar="PATH", help="path below which a proxy shows the page")
    group.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve Prometheus metrics on this port of 127.0.0.1"
    )
    group.add_argument(
        "--log-json", action="store_true", help="log requests, jobs and errors as JSON lines, without users' texts"
    )


def run(arguments: argparse.Namespace) -> None:
    """Serve the page until it is stopped."""
    from focus_explorer.ui.hosting.modes import Hosting

    hosting = Hosting(
        host=arguments.host,
        allow_hosts=tuple(arguments.allow_host),
        users=arguments.auth,
        trusted_header=arguments.trusted_header,
        insecure=arguments.insecure,
        root_path=arguments.root_path.rstrip("/"),
        allow_paths=tuple(arguments.allow_path),
        metrics_port=arguments.metrics_port,
        log_json=arguments.log_json,
    )
    hosting.check(mcp=arguments.mcp)
    from focus_explorer.ui.gradio_import import import_gradio
    from focus_explorer.ui.hosting.uploads import private_uploads

    private_uploads()
    import_gradio()
    from focus_explorer.ui.shell import build_app

    request = AnalyzeRequest(
        model=arguments.model,
        centroids=arguments.centroids,
        device=arguments.device,
        dtype=arguments.dtype,
        backend=arguments.backend,
        repeats=arguments.repeats,
    )
    request.check()
    app = build_app(database=arguments.db, request=request, hosting=hosting)
    app.launch(port=arguments.port, mcp=arguments.mcp, exits=True)
